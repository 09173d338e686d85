"""Echo servers of two RPC frameworks, as processes of their own: `python echo.py grpc|thrift PORT`."""

import sys
from concurrent.futures import ThreadPoolExecutor
from io import StringIO

import grpc
import thriftpy2
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.rpc import make_server
from thriftpy2.transport import TFramedTransportFactory

THRIFT = thriftpy2.load_fp(StringIO("service Echo { string echo(1: string text) }"), "echo_thrift").Echo
FRAMED = {"proto_factory": TBinaryProtocolFactory(), "trans_factory": TFramedTransportFactory()}
STREAMS = 50


class Text:
    """The Thrift service."""

    def echo(self, text: str) -> str:
        return text


class Bytes(grpc.GenericRpcHandler):
    """Every gRPC method."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(lambda request, _: request)


def main(kind: str, port: str) -> None:
    if kind == "thrift":
        make_server(THRIFT, Text(), "127.0.0.1", int(port), **FRAMED).serve()
        return
    server = grpc.server(ThreadPoolExecutor(STREAMS), handlers=(Bytes(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
