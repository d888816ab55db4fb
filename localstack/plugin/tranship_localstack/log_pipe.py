"""What a process writes to its standard streams."""

import os
import select
import threading


class LogPipe:
    """stdout and stderr of one process, merged; drain() returns all that was written so far.

    The read end never blocks, and a thread empties it, so that a process that writes much
    is not held up by a full pipe.
    """

    def __init__(self):
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        self.lock = threading.Lock()
        self.chunks = []
        threading.Thread(target=self._pump, name="lambda-log-pipe", daemon=True).start()

    def _read(self):
        """Takes what the pipe holds now; False at its end."""
        with self.lock:
            while True:
                try:
                    chunk = os.read(self.read_end, 65536)
                except BlockingIOError:
                    return True
                except OSError:
                    return False
                if not chunk:
                    return False
                self.chunks.append(chunk)

    def _pump(self):
        poller = select.poll()
        poller.register(self.read_end, select.POLLIN)
        while True:
            poller.poll()
            if not self._read():
                break
        with self.lock:
            os.close(self.read_end)
            self.read_end = -1

    def drain(self):
        self._read()
        with self.lock:
            chunks, self.chunks = self.chunks, []
        return b"".join(chunks).decode("utf-8", "replace")
