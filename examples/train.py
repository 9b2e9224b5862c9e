"""A training in 15 lines. It saves its state after every epoch, goes on from there after a preemption, and reports its progress.

    berth submit mine -p team-b -g 4 -- python3 examples/train.py
"""
import json, os, random, time
import berth  # Berth puts it on the path of every process workload; it needs nothing but the standard library.

path = os.path.join(berth.checkpoint_dir(), "state.json")  # kept between the runs of a workload
done, weight = json.load(open(path)) if os.path.exists(path) else (0, 0.0)
print(f"starts after epoch {done}")
data = [(x, 3 * x) for x in (random.random() for _ in range(1000))]  # the weight to be found is 3
for epoch in range(done + 1, 121):
    loss = sum((weight * x - y) ** 2 for x, y in data) / len(data)
    weight -= 0.1 * sum((weight * x - y) * x for x, y in data) / len(data)
    with open(path + ".new", "w") as file:
        json.dump([epoch, weight], file)
    os.replace(path + ".new", path)  # a kill in between leaves the last whole checkpoint
    berth.checkpoint()  # from here on less is lost, so others are preferred as victims
    berth.report(epoch=epoch, epochs=120, loss=loss, weight=weight)
    time.sleep(0.5)
