"""The gateway on the hosts of GATEWAY_LISTEN only: the core's server ignores an IPv4 host and
listens on all interfaces. GATEWAY_SERVER=loopback selects this one; an unknown name stops the
start, so that the choice can't fail silently.
"""

from localstack.runtime.server.plugins import RuntimeServerPlugin


class LoopbackServerPlugin(RuntimeServerPlugin):
    name = "loopback"

    def load(self, *args, **kwargs):
        from localstack import config
        from localstack.runtime.server.twisted import TwistedRuntimeServer
        from rolo.serving.twisted import TwistedGateway
        from twisted.internet import endpoints, reactor

        class LoopbackServer(TwistedRuntimeServer):
            """Plain HTTP: nobody needs TLS on the loopback interface."""

            def register(self, gateway, listen, ssl_creds=None):
                site = TwistedGateway(gateway)
                for address in listen:
                    if not address.host.startswith("127."):
                        raise ValueError(f"the rig listens on 127.0.0.1 only, not on {address.host}")
                    endpoint = endpoints.TCP4ServerEndpoint(reactor, address.port, interface=address.host)
                    endpoint.listen(site).addErrback(_fail, address)

        def _fail(failure, address):
            print(f"cannot listen on {address.host}:{address.port}: {failure.value}", flush=True)
            reactor.callWhenRunning(reactor.stop)

        if not config.GATEWAY_LISTEN:
            raise ValueError("GATEWAY_LISTEN is empty")
        return LoopbackServer()
