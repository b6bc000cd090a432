"""A stand-in of a driver, without Spark: `stand_in_driver.py FOLDER ACTION...`, an action for each start, the last one
for all further ones. It writes the orders that it got into FOLDER, one a line.

done    reports a plan of two partitions, how far it is, and DONE
wait    reports the plan, then waits for SIGTERM, and reports CANCELLED
die     reports the plan, and dies with a line on stderr
further reports that it has come further, and dies
tells   reports FAILED, with a secret
chatty  as done, with a line between that is no report
deaf    reports the plan, and does not hear SIGTERM
hang    reports DONE, and does not end
"""

import json
import signal
import sys
import time

folder, *actions = sys.argv[3:]  # after `run replay`
order = json.loads(sys.stdin.readline())
with open(f"{folder}/orders", "a+") as orders:  # noqa: PTH123  # quick to start: it imports next to nothing
    orders.seek(0)
    attempt = len(orders.readlines())
    orders.write(json.dumps(order) + "\n")
before = {each.get("partition", 0): int(each.get("position", 0)) for each in order["replay"].get("partitions", [])}
position = before.get(1, 10)


def report(state: str, **more: object) -> None:
    print(json.dumps({"name": order["replay"]["name"], "state": f"REPLAY_STATE_{state}", **more}), flush=True)


def at(offset: int) -> dict[str, list[dict[str, object]]]:
    plan: dict[str, object] = {"topic": "apples", "end_offset": 100}
    return {"partitions": [{**plan, "partition": 0, "position": 10}, {**plan, "partition": 1, "position": offset}]}


# SIGTERM is waited for, and not handled: a handler may run while a line is written, which can't be begun anew within.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
action = actions[min(attempt, len(actions) - 1)]
if order["replay"].get("cancelling"):
    report("CANCELLED", description="swept")
    sys.exit(0)
report("RUNNING", **at(position))
if action in ("done", "chatty"):
    if action == "chatty":
        print("a library's own words", flush=True)
    report("RUNNING", partitions=at(50)["partitions"][1:])
    report("DONE", **at(100))
elif action == "die":
    sys.exit(f"Error: {order['clusters']['c1'].get('sasl.password', 'the disk')} is full")
elif action == "tells":
    report("FAILED", description=f"no login with {order['clusters']['c1']['sasl.password']}")
elif action == "further":
    report("RUNNING", **at(position + 1))
    sys.exit(1)
elif action == "hang":
    report("DONE", **at(100))
    time.sleep(600)
elif action == "deaf":
    time.sleep(600)
else:
    signal.sigwait({signal.SIGTERM})
    report("CANCELLED", **at(position))
