"""The execution environments of this core: listed, killed on demand, held to their memory."""

import threading
import time

MEMORY_CHECK_SEC = 0.05


class Environments:
    def __init__(self):
        self.lock = threading.Lock()
        self.by_id = {}
        self.watching = False

    def add(self, executor):
        with self.lock:
            self.by_id[executor.id] = executor
            if not self.watching:
                self.watching = True
                threading.Thread(target=self._watch_memory, name="lambda-memory", daemon=True).start()

    def remove(self, executor):
        with self.lock:
            self.by_id.pop(executor.id, None)

    def all(self):
        with self.lock:
            return list(self.by_id.values())

    def get(self, environment_id):
        with self.lock:
            return self.by_id.get(environment_id)

    def _watch_memory(self):
        """Kills what holds more memory than its function may, as AWS does (SIGKILL).

        Resident memory is sampled: RLIMIT_AS would count what Go reserves and never touches.
        """
        while True:
            time.sleep(MEMORY_CHECK_SEC)
            for executor in self.all():
                executor.check_memory()


ENVIRONMENTS = Environments()
