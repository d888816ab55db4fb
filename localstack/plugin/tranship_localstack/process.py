"""One runtime process: how it is started, frozen, killed, and what its end means."""

import os
import pathlib
import signal
import subprocess
import threading

from tranship_localstack.log_pipe import LogPipe

SIGNALS = {signal.SIGKILL: "killed", signal.SIGTERM: "terminated", signal.SIGSEGV: "segmentation fault"}


class RuntimeProcess:
    """`bootstrap` in a session of its own, so that its children die with it.

    Each live process has a file in <FILESYSTEM_ROOT>/environments named by its pid, with
    which the rig ends the processes of a core that was killed: a frozen one would stay
    for ever.
    """

    def __init__(self, code: str, env: dict[str, str], on_exit):
        self.pipe = LogPipe()
        try:
            self.popen = subprocess.Popen(
                [os.path.join(code, "bootstrap")],
                cwd=code,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=self.pipe.write_end,
                stderr=self.pipe.write_end,
                start_new_session=True,
            )
        finally:
            os.close(self.pipe.write_end)
        self.frozen = False
        self.pid_file = _pid_folder() / str(self.pid)
        self.pid_file.touch()
        threading.Thread(target=self._reap, args=(on_exit,), name="lambda-reaper", daemon=True).start()

    @property
    def pid(self):
        return self.popen.pid

    def _reap(self, on_exit):
        self.popen.wait()
        self.pid_file.unlink(missing_ok=True)
        on_exit()

    def gone(self):
        return self.popen.poll() is not None

    def freeze(self):
        """Stops the process between invocations, as AWS does: background work stands still."""
        self.frozen = True
        self._signal(signal.SIGSTOP)

    def thaw(self):
        self.frozen = False
        self._signal(signal.SIGCONT)

    def kill(self):
        self._signal(signal.SIGKILL)

    def kill_and_wait(self):
        self.kill()
        self.popen.wait(5)

    def _signal(self, number):
        if self.gone():
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def resident_bytes(self):
        """Memory that the process holds now; 0 when it has gone."""
        try:
            pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def exit_error(self):
        """The error that AWS reports for a process that ended without an answer."""
        code = self.popen.poll()
        if not code:
            return ("Runtime.ExitError", "Error: Runtime exited without providing a reason")
        if code < 0:
            name = SIGNALS.get(-code, str(-code))
            return ("Runtime.ExitError", f"Error: Runtime exited with error: signal: {name}")
        return ("Runtime.ExitError", f"Error: Runtime exited with error: exit status {code}")


def _pid_folder():
    folder = pathlib.Path(os.environ["FILESYSTEM_ROOT"]) / "environments"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
