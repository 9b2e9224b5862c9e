"""Tells Berth how a job is doing. Standard library only; outside of Berth it does no harm.

    import berth
    berth.report(epoch=3, epochs=10, loss=0.2)
    berth.checkpoint()
"""

import json
import os
import signal
import sys
import urllib.request

__all__ = ["report", "checkpoint", "checkpoint_dir", "on_stop"]

_FIELDS = ("epoch", "epochs", "step", "steps", "loss", "accuracy", "eta", "percent", "utilisation", "throughput")
_TIMEOUT_SECS = 5


def report(**values):
    """Reports progress. Known names are epoch, epochs, step, steps, loss, accuracy, throughput (samples per second),
    eta (seconds), percent and utilisation (percent); any other number is a metric. Never raises because of Berth, and never stops a training."""
    if "BERTH_TASK" not in os.environ and "BERTH_REPORT_URL" not in os.environ:
        return
    body = {}
    for name, value in values.items():
        if value is None:
            continue
        if name == "eta" and not isinstance(value, str):
            value = "%ds" % int(value)
        elif name not in _FIELDS or name in ("loss", "accuracy", "throughput"):
            value = _number(value)
        body[name] = value
    _send("report", body)


def checkpoint():
    """Says that a checkpoint was written, so that less work counts as lost when this job has to yield."""
    path = os.environ.get("BERTH_CHECKPOINT_FILE")
    if path:
        try:
            with open(path, "a"):
                os.utime(path, None)
            return
        except OSError:
            pass
    if "BERTH_TASK" in os.environ or "BERTH_REPORT_URL" in os.environ:
        _send("checkpoint", {})


def checkpoint_dir(default="checkpoints"):
    """The folder for checkpoints. It is kept when the job is preempted and resumed, and created if need be."""
    path = os.environ.get("BERTH_CHECKPOINT_DIR") or default
    os.makedirs(path, exist_ok=True)
    return path


def on_stop(callback):
    """Calls `callback()` when Berth asks the job to stop, then ends it with the usual code. There is a grace for this;
    when it is over the job is ended by force."""

    def handle(_signal, _frame):
        callback()
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, handle)


def _number(value):
    # Numbers of numpy and torch know how to become floats, and json does not know them.
    if isinstance(value, (int, float, str)):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def _send(kind, body):
    url, token = os.environ.get("BERTH_REPORT_URL"), os.environ.get("BERTH_REPORT_TOKEN")
    if url:
        request = urllib.request.Request(
            url.rstrip("/") + "/" + kind,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        if token:
            request.add_header("Authorization", "Bearer " + token)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECS):
                return
        except OSError:
            pass
    line = "berth.checkpoint" if kind == "checkpoint" else "berth: " + json.dumps(body)
    # One write, so that lines of several workers do not mix.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
