"""The rig's own HTTP interface to this core, beside the AWS one.

GET  /_tranship/environments            the execution environments and their processes
POST /_tranship/environments/<id>/kill  SIGKILL, at once, whatever it does
"""

import json

from localstack.http import Response
from localstack.runtime import hooks

from tranship_localstack.environments import ENVIRONMENTS


@hooks.on_infra_start()
def install_control():
    from localstack.services.edge import ROUTER

    ROUTER.add("/_tranship/environments", _list, methods=["GET"])
    ROUTER.add("/_tranship/environments/<environment_id>/kill", _kill, methods=["POST"])


def _list(request):
    return _json(200, {"environments": [e.describe() for e in ENVIRONMENTS.all()]})


def _kill(request, environment_id):
    executor = ENVIRONMENTS.get(environment_id)
    if executor is None or not executor.kill_process():
        return _json(404, {"message": f"environment {environment_id} has no live process"})
    return _json(200, executor.describe())


def _json(status, body):
    return Response(json.dumps(body), status=status, mimetype="application/json")
