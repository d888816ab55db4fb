"""The plug-in that LAMBDA_RUNTIME_EXECUTOR=process selects."""

from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin


class ProcessRuntimeExecutorPlugin(RuntimeExecutorPlugin):
    name = "process"

    def load(self, *args, **kwargs):
        from tranship_localstack.executor import ProcessRuntimeExecutor

        return ProcessRuntimeExecutor
