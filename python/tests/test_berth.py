"""python3 -m unittest discover -s python/tests; standard library only."""

import contextlib
import http.server
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PACKAGE))

import berth  # noqa: E402


class Berth(unittest.TestCase):
    def setUp(self):
        names = [name for name in os.environ if name.startswith("BERTH_")]
        patch = unittest.mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)
        for name in names:
            del os.environ[name]

    def printed(self, call):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            call()
        return out.getvalue()

    def test_outside_of_berth_nothing_is_said(self):
        self.assertEqual(self.printed(lambda: berth.report(epoch=1)), "")
        self.assertEqual(self.printed(berth.checkpoint), "")

    def test_a_report_is_one_line_of_json(self):
        os.environ["BERTH_TASK"] = "x/1.1.0"
        line = self.printed(lambda: berth.report(epoch=3, epochs=10, loss=0.25, eta=80, perplexity=2, nothing=None))
        self.assertTrue(line.startswith("berth: ") and line.count("\n") == 1)
        expected = {"epoch": 3, "epochs": 10, "loss": 0.25, "eta": "80s", "perplexity": 2}
        self.assertEqual(json.loads(line[len("berth: ") :]), expected)

    def test_a_checkpoint_touches_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "checkpoint")
            os.environ["BERTH_CHECKPOINT_FILE"] = path
            self.assertEqual(self.printed(berth.checkpoint), "")
            self.assertTrue(os.path.exists(path))

    def test_the_folder_of_checkpoints_is_made(self):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["BERTH_CHECKPOINT_DIR"] = os.path.join(folder, "a", "b")
            self.assertTrue(os.path.isdir(berth.checkpoint_dir()))

    def test_a_report_goes_over_http_when_there_is_an_address(self):
        got = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got.append((self.path, self.headers["Authorization"], json.loads(body)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        os.environ["BERTH_REPORT_URL"] = "http://127.0.0.1:%d/r" % server.server_port
        os.environ["BERTH_REPORT_TOKEN"] = "secret"
        self.assertEqual(self.printed(lambda: berth.report(step=1)), "")
        self.assertEqual(got, [("/r/report", "Bearer secret", {"step": 1})])

    def test_a_report_is_printed_when_nobody_answers(self):
        os.environ["BERTH_REPORT_URL"] = "http://127.0.0.1:9"
        self.assertIn("berth: ", self.printed(lambda: berth.report(step=1)))

    def test_a_stop_calls_back_and_ends(self):
        script = "import berth, time; berth.on_stop(lambda: print('saved')); print('ready', flush=True); time.sleep(60)"
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as child:
            self.assertEqual(child.stdout.readline(), b"ready\n")
            child.send_signal(signal.SIGTERM)
            self.assertEqual(child.stdout.read(), b"saved\n")
            self.assertEqual(child.wait(), 143)


if __name__ == "__main__":
    unittest.main()
