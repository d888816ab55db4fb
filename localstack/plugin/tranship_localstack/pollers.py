"""Standard queues feed several environments at once: the core hands one batch after another
to a function, so that a worker that runs for minutes would hold up all others. AWS begins with
five batches at a time; MaximumConcurrency is beyond the core, which does not keep it.
"""

import logging
import threading

from localstack.runtime import hooks

LOG = logging.getLogger(__name__)
BATCHES_AT_ONCE = 5


@hooks.on_infra_start()
def install_pollers():
    from localstack.services.lambda_.event_source_mapping.pollers.sqs_poller import SqsPoller

    SqsPoller.poll_events = _parallel(SqsPoller.poll_events, SqsPoller.handle_messages)
    LOG.info("SQS mappings: up to %d batches of a standard queue at once", BATCHES_AT_ONCE)


def _parallel(poll_events, handle_messages):
    def poll(self):
        if self.is_fifo_queue:
            return poll_events(self)  # in order
        if not hasattr(self, "free"):
            self.free = threading.Semaphore(BATCHES_AT_ONCE)
        # Nothing is received that nobody could handle: it would age invisibly.
        if not self.free.acquire(timeout=1):
            return None
        handed_on = False

        def handle(messages):
            nonlocal handed_on
            handed_on = True
            threading.Thread(target=work, args=(messages,), name="sqs-batch", daemon=True).start()

        def work(messages):
            try:
                handle_messages(self, messages)
            except Exception as e:
                LOG.warning("batch of %s failed: %s", self.source_arn, e)
            finally:
                self.free.release()

        self.handle_messages = handle
        try:
            return poll_events(self)
        finally:
            del self.handle_messages
            if not handed_on:
                self.free.release()

    return poll
