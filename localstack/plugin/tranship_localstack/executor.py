"""LocalStack's Lambda runtime executor that runs `bootstrap` as a local process."""

import json
import logging
import math
import os
import time

from localstack import config
from localstack.services.lambda_.invocation.lambda_models import FunctionVersion, InvocationResult
from localstack.services.lambda_.invocation.runtime_executor import (
    LambdaRuntimeException,
    RuntimeExecutor,
)

from tranship_localstack.environments import ENVIRONMENTS
from tranship_localstack.process import RuntimeProcess
from tranship_localstack.runtime_api import RuntimeApi

LOG = logging.getLogger(__name__)
INIT_TIMEOUT_SEC = 10  # as on AWS
HOST = "127.0.0.1"
MAX_RESPONSE = 6 * 1024 * 1024 + 100
MIB = 1024 * 1024


class ProcessRuntimeExecutor(RuntimeExecutor):
    """One execution environment: at most one process at a time, replaced when it has gone."""

    def __init__(self, id: str, function_version: FunctionVersion) -> None:
        super().__init__(id=id, function_version=function_version)
        self.api = None
        self.process = None
        self.env = {}
        self.init_ms = None
        self.init_failure = None  # answers the next invocation
        self.request_id = None  # of the invocation that runs now
        self.stopped = False

    # life cycle

    @classmethod
    def validate_environment(cls) -> bool:
        LOG.info("Lambda runtime executor: process (no Docker)")
        return True

    @classmethod
    def prepare_version(cls, function_version: FunctionVersion) -> None:
        fn = function_version.config
        if not (fn.runtime or "").startswith("provided"):
            raise LambdaRuntimeException(f"the process executor runs provided.* only, not {fn.runtime}")
        fn.code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version: FunctionVersion) -> None:
        pass

    def start(self, env_vars: dict[str, str]) -> None:
        code = str(self.function_version.config.code.get_unzipped_code_location())
        self.api = RuntimeApi()
        self.env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/opt/bin",
            "LANG": "en_US.UTF-8",
            # endpoints of the rig's other parts, which the SDK finds by itself
            **json.loads(os.environ.get("TRANSHIP_RIG_FUNCTION_ENV", "{}")),
            **{k: str(v) for k, v in env_vars.items() if not k.startswith("LOCALSTACK_")},
            "AWS_LAMBDA_RUNTIME_API": f"{HOST}:{self.api.port}",
            "LAMBDA_TASK_ROOT": code,
            "LAMBDA_RUNTIME_DIR": code,
        }
        ENVIRONMENTS.add(self)
        self._spawn()

    def stop(self) -> None:
        self.stopped = True
        ENVIRONMENTS.remove(self)
        if self.process:
            self.process.kill_and_wait()
        if self.api:
            self.api.close()

    def _spawn(self):
        """Starts the process and waits until it asks for work; a failure is kept for invoke().

        Raising instead would lose its logs.
        """
        self.init_failure = self.process = None
        self.api.new_process()
        began = time.monotonic()
        try:
            self.process = RuntimeProcess(self.env["LAMBDA_TASK_ROOT"], self.env, self.api.notify)
        except OSError as e:  # no bootstrap, not executable, wrong architecture
            self.init_failure = ("Runtime.InvalidEntrypoint", f"Error: {e}")
            return
        ready = self._wait(lambda: self.api.idle or self.api.init_error, INIT_TIMEOUT_SEC)
        self.init_ms = (time.monotonic() - began) * 1000
        if self.api.init_error:
            self.init_failure = self.api.init_error
        elif ready and not self.api.idle:
            self.init_failure = self.process.exit_error()
        elif not ready:
            self.init_failure = ("Sandbox.Timedout", f"Error: Init timed out after {INIT_TIMEOUT_SEC}.00 seconds")
        if self.init_failure:
            self.process.kill_and_wait()
        else:
            self.process.freeze()

    def _gone(self):
        return self.stopped or self.process is None or self.process.gone()

    def _wait(self, condition, seconds):
        """True when condition holds or the process has gone, False on a timeout."""
        with self.api.cond:
            return self.api.cond.wait_for(lambda: condition() or self._gone(), max(0, seconds))

    # invocation

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        request_id = payload["invoke-id"]
        if self.init_failure is None and self._gone():
            self._spawn()  # the process of an earlier invocation ended
        init_ms, self.init_ms = self.init_ms, None
        began = time.monotonic()
        if self.init_failure:
            status, body = "error", _error_body(self.init_failure, request_id)
            self.init_failure = None
        else:
            status, body = self._run(payload)
        ms = (time.monotonic() - began) * 1000
        logs = self._log(request_id, ms, init_ms, status)
        return InvocationResult(request_id, body, is_error=status is not None, logs=logs)

    def _run(self, payload):
        """Hands the event to the process; returns (None | "error" | "timeout", body)."""
        request_id = payload["invoke-id"]
        timeout = int(self.function_version.config.timeout)
        self.request_id = request_id
        self.process.thaw()
        with self.api.cond:
            self.api.result = None
            self.api.pending = {**payload, "deadline-ms": int((time.time() + timeout) * 1000)}
            self.api.cond.notify_all()
        # over when answered and asking for more
        finished = self._wait(lambda: self.api.result is not None and self.api.idle, timeout)
        self.request_id = None
        if self.stopped:
            raise LambdaRuntimeException("environment stopped during an invocation")
        with self.api.cond:
            result = self.api.result
            self.api.event = self.api.pending = None
        if not finished:
            self.process.kill_and_wait()
            text = f"Error: Task timed out after {timeout:.2f} seconds"
            return "timeout", _error_body(("Sandbox.Timedout", text), request_id)
        if not self.process.gone():
            self.process.freeze()
        if not result:
            return "error", _error_body(self.process.exit_error(), request_id)
        is_error, body = result
        if len(body) > MAX_RESPONSE:
            text = f"Response payload size exceeded maximum allowed payload size ({MAX_RESPONSE} bytes)."
            return "error", json.dumps({"errorType": "Function.ResponseSizeTooLarge", "errorMessage": text}).encode()
        return ("error" if is_error else None), body

    def _log(self, request_id, ms, init_ms, status):
        output = self.get_logs()
        if output and not output.endswith("\n"):
            output += "\n"
        if self.process and self.process.gone() and status == "error":
            output += f"RequestId: {request_id} {self.process.exit_error()[1]}\n"
        memory = self.function_version.config.memory_size
        report = (
            f"REPORT RequestId: {request_id}\tDuration: {ms:.2f} ms"
            f"\tBilled Duration: {math.ceil(ms)} ms\tMemory Size: {memory} MB"
        )
        if init_ms is not None:
            report += f"\tInit Duration: {init_ms:.2f} ms"
        if status:
            report += f"\tStatus: {status}"
        return (
            f"START RequestId: {request_id} Version: {self.function_version.id.qualifier}\n"
            f"{output}END RequestId: {request_id}\n{report}\n"
        )

    # what the rig asks for

    def describe(self):
        process = self.process
        if process is None or process.gone():
            state = "gone"
        elif self.request_id:
            state = "running"
        else:
            state = "frozen" if process.frozen else "starting"
        return {
            "id": self.id,
            "function": self.function_version.id.function_name,
            "pid": process.pid if process else 0,
            "state": state,
            "request": self.request_id,
        }

    def kill_process(self):
        """SIGKILL now; False if there is no process."""
        process = self.process
        if process is None or process.gone():
            return False
        process.kill()
        return True

    def check_memory(self):
        process = self.process
        if process and process.resident_bytes() > self.function_version.config.memory_size * MIB:
            LOG.info("%s holds more than its memory: killed", self.function_version.id.function_name)
            process.kill()

    # what LocalStack asks an executor for

    def get_address(self) -> str:
        return HOST

    def get_endpoint_from_executor(self) -> str:
        return HOST

    def get_runtime_endpoint(self) -> str:
        return f"http://{HOST}:{config.GATEWAY_LISTEN[0].port}/_unused/{self.id}"

    def get_logs(self) -> str:
        return self.process.pipe.drain() if self.process else ""


def _error_body(failure, request_id):
    if isinstance(failure, bytes):  # the runtime's own words
        return failure
    kind, text = failure
    return json.dumps({"errorType": kind, "errorMessage": f"RequestId: {request_id} {text}"}).encode()
