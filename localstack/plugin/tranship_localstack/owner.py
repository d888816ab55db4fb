"""Ends this core when the process that started it has gone, however it went.

The owner keeps a pipe open as our standard input; its end of file is the owner's end.
"""

import logging
import os
import signal
import threading
import time

from localstack.runtime import hooks

from tranship_localstack.environments import ENVIRONMENTS

LOG = logging.getLogger(__name__)
SHUTDOWN_SEC = 10  # a stop that hangs was seen


@hooks.on_infra_start(should_load=lambda: os.environ.get("TRANSHIP_RIG_OWNER") == "stdin")
def follow_owner():
    threading.Thread(target=_follow, name="rig-owner", daemon=True).start()


def _follow():
    while os.read(0, 1024):
        pass
    LOG.info("the rig has gone: stopping")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SHUTDOWN_SEC)
    for executor in ENVIRONMENTS.all():
        executor.kill_process()
    os._exit(1)
