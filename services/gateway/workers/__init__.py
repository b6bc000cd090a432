"""A gateway of several processes (`--workers N`): one supervisor, which serves no client, and N workers.

Theory of operation
1. A worker is a gateway of its own: `NAME-1`, `NAME-2` and so on are members of the mesh, each with its own watch on a
   router, its own holds and acknowledgements, its own connections to clusters. What is true for two gateways behind one
   address is true for two workers; nothing is shared but the folder of the last table, where the youngest one counts.
   One thing is kept by one worker for all: the share session of a member (`downstream.siblings`).
2. The supervisor listens. It hands each connection that it has accepted to the worker with the least load (`balance`),
   over a socket between the two, the `door`. SO_REUSEPORT would leave that to a hash of the client's address: with two
   workers that puts two busy connections on one of them half of the time, and of eight in the middle five (measured).
   Kafka's connections are few and live long, so who has bad luck keeps it. A worker that dies takes no connection with
   it but its own, for none waits at a socket of its own.
3. `line` is how both talk: orders go down (stop; tell your metrics), words come up (phase, connections). A thread of
   the worker answers, whatever its event loop does. When the line closes, the supervisor is gone, however it ended:
   then the worker drains and ends too.
4. A start is of all or none: a worker that ends before all were ready ends the gateway, as a fault in a single process
   would. Later one that ends is started again, after a pause that grows while it does not last (`supervision`).
5. At a stop nobody is let in any more, all workers drain at once, and what has not ended when its time is over is
   killed. Workers have a session of their own, so a terminal's Ctrl-C reaches the supervisor alone.
6. /metrics has each worker's series with its number as label `worker` (`exposition`). Sums would go down when a worker
   is started again, which rates take for a new beginning of all. A scrape costs the workers' requests nothing but the
   thread's time; counting costs what it costs in a single process.
"""
