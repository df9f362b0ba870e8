"""A receiver of webhooks: verifies each event, notes it, and only then answers.

Needs Python's standard library and, in the same directory, `webhook.py`, the example in the article
on receiving webhooks. Its arguments are the secret, the file in which it notes the events, and a file
with the time in milliseconds since 1970. It prints its port on standard output. Sometimes it fails,
before or after it has noted an event, depending on the event.
"""

import http.server
import json
import sys
import threading

from webhook import is_genuine

secret, notes, clock = sys.argv[1:]
lock = threading.Lock()
seen = {}


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(clock) as file:
            now = int(file.read()) / 1000
        if is_genuine(self.headers["Tenure-Signature"], body, secret, now):
            self.answer(self.note(json.loads(body)))
        else:
            self.answer(401)

    def note(self, event):
        with lock:
            number = int(event["id"])
            seen[number] = seen.get(number, 0) + 1
            breaks = number % 23 == 0 and seen[number] == 1
            if breaks and number % 2 == 0:
                return 503
            with open(notes, "a") as file:
                file.write(json.dumps({"id": event["id"], "account_id": event["account_id"]}) + "\n")
            return 500 if breaks else 200

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format, *arguments):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
