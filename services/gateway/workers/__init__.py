"""A gateway of several processes (`--workers N`): one supervisor, which serves no client, and N workers.

Theory of operation
1. A worker is a gateway of its own: `NAME-1`, `NAME-2` and so on are members of the mesh. Each has its own watch on a
   router, its own holds and acknowledgements, its own connections to clusters. Two workers behave as two gateways
   behind one address do. They share only the folder of the last table, where the youngest table counts. One worker
   keeps the share session of a member for all workers (`downstream.siblings`).
2. The supervisor listens. It hands each accepted connection to the worker with the least load (`balance`), over a
   socket between the two, the `door`. SO_REUSEPORT would choose the worker by a hash of the client's address. With two
   workers, the hash puts two busy connections on one worker half of the time, and five of eight in the middle
   (measured). Kafka's connections are few and live long, so bad luck would last. A worker that dies takes only its own
   connections with it, because no connection waits at a socket of the worker.
3. The supervisor and a worker talk over the `line`: orders go down (stop; tell your metrics), words come up (phase,
   connections). A thread of the worker answers, whatever its event loop does. When the line closes, the supervisor is
   gone, however it ended. The worker then drains and ends too.
4. A start is of all or none: a worker that ends before all were ready ends the gateway, as a fault in a single process
   would. A worker that ends later is started again, after a pause that grows while the worker does not last
   (`supervision`).
5. At a stop the gateway takes no new clients, and all workers drain at once. A worker that has not ended when its time
   is over is killed. Workers have a session of their own, so a terminal's Ctrl-C reaches the supervisor alone.
6. /metrics has each worker's series with its number as label `worker` (`exposition`). Sums would go down when a worker
   is started again, and a rate would take this for a restart of all workers. A scrape costs the workers' requests
   nothing but the thread's time; counting costs the same as in a single process.
"""
