"""Brokers push: what they deliver and what acknowledges it are no RPCs; what publishes and asks are."""

import asyncio
import threading
import time
from functools import partial

import nats
import paho.mqtt.client as mqtt
import pika
import pytest
from nats.aio.msg import Msg

from tests.support.servers import mosquitto, rabbitmq, version
from tests.support.servers import nats as nats_server
from tests.support.waiting import wait_until
from tests.truth.calls import (
    ROLES,
    Calls,
    assert_events_are_calls,
    assert_nothing_is_lost,
    events,
    excluded,
    failures,
    of_clients,
    tell,
)

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("needs_storage")]

PAUSE_S = 0.4  # above the 200 ms that are silence
DEADLINE_S = 10
FIRST_PING_S = 3  # NATS pings a new client within 2.4 s, and then every two minutes


class Mqtt:
    """A client of MQTT that waits for each answer, and its log."""

    def __init__(self, name: str, port: int) -> None:
        self.calls, self.received = Calls(), 0
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name)
        self._answered = threading.Event()
        self._client.on_connect = self._client.on_subscribe = lambda *_: self._answered.set()
        self._client.on_message = self._count
        with self.calls.call():
            self._client.connect("127.0.0.1", port)  # sends CONNECT
            self._client.loop_start()
            assert self._answered.wait(DEADLINE_S)
        self.port: int = self._client.socket().getsockname()[1]

    def subscribe(self, topic: str) -> None:
        self._answered.clear()
        with self.calls.call():
            self._client.subscribe(topic, qos=1)
            assert self._answered.wait(DEADLINE_S)

    def publish(self, topic: str, *, retain: bool = False) -> None:
        """QoS 1: the broker acknowledges it."""
        with self.calls.call():
            self._client.publish(topic, b"news", qos=1, retain=retain).wait_for_publish(DEADLINE_S)

    def close(self) -> None:
        """DISCONNECT, which has no answer, and close."""
        self._client.disconnect()
        self._client.loop_stop()

    def _count(self, *_: object) -> None:
        self.received += 1


def test_what_an_mqtt_broker_delivers_with_qos_1_and_its_acknowledgement_are_pushes(flushed, tmp_path, port):
    """The client's PUBACK has no answer. To publish is an RPC: the broker acknowledges."""
    flushed.measure(port)
    with mosquitto(tmp_path, port):
        publisher, subscriber = Mqtt("publisher", port), Mqtt("subscriber", port)
        subscriber.subscribe("news")
        for number in range(8):
            time.sleep(PAUSE_S)
            publisher.publish("news")
            wait_until(lambda upto=number + 1: subscriber.received == upto)
        time.sleep(PAUSE_S)
        subscriber.close()
        publisher.close()
    of_publisher, of_subscriber = of_clients(flushed.records_of_ended(), publisher.port)
    software = f"mosquitto {version('mosquitto', '-h')}"
    tell(software, "CONNECT, PUBLISH with QoS 1", publisher.calls, of_publisher)
    tell(software, "SUBSCRIBE, and 8 messages with QoS 1 that come", subscriber.calls, of_subscriber)
    assert_events_are_calls(publisher.calls, of_publisher)
    assert_nothing_is_lost(of_publisher)
    assert_events_are_calls(subscriber.calls, of_subscriber, missing=1)  # SUBACK, pause, message: streaming
    for role in ROLES:
        assert excluded(of_subscriber, role)["push"] >= 7


@pytest.mark.parametrize("flush", [True, False], ids=["flushed", "not flushed"])
def test_a_service_of_nats_is_pushed_its_requests_and_their_answers_are_no_requests(flushed, port, flush):
    """Who asks sees one RPC each. A SUB has no answer; a flush (PING, PONG) behind it is an RPC.

    A limit: where the service flushes nothing behind its SUB, the first message that comes seems to answer it, and from
    then on each answer of the service seems to be a request for the next message.
    """
    asked, served = Calls(), Calls()
    ports: list[int] = []

    async def scene() -> None:
        connect = partial(nats.connect, f"nats://127.0.0.1:{port}", allow_reconnect=False)
        service, client = await connect(), await connect()
        ports.extend(one._transport._io_writer.get_extra_info("sockname")[1] for one in (service, client))

        async def answer(message: Msg) -> None:
            await message.respond(message.data)

        await asyncio.sleep(FIRST_PING_S)
        await service.subscribe("echo", cb=answer)
        await asyncio.sleep(PAUSE_S)
        if flush:
            with served.call():
                await service.flush()
        for _ in range(8):
            await asyncio.sleep(PAUSE_S)
            with asked.call():
                await client.request("echo", b"question", timeout=DEADLINE_S)
        for _ in range(50):
            with asked.call():
                await client.request("echo", b"question", timeout=DEADLINE_S)
        await client.close()
        await service.close()

    flushed.measure(port)
    with nats_server(port):
        asyncio.run(scene())
    of_service, of_client = of_clients(flushed.records_of_ended(), ports[0])
    software = f"NATS {version('nats-server', '--version')}"
    tell(software, "58 requests, asked", asked, of_client)
    tell(software, f"58 requests, served{'' if flush else ', no flush behind SUB'}", served, of_service)
    assert_events_are_calls(asked, of_client)
    for role in ROLES:
        assert excluded(of_client, role) == {"setup": 2, "push": 1}  # the first PING of the server
    if flush:
        assert_events_are_calls(served, of_service, missing=1)  # PONG, pause, message: streaming
        for role in ROLES:
            assert excluded(of_service, role)["push"] >= 50


class Amqp:
    """A client of AMQP, and its log."""

    def __init__(self, port: int, *, heartbeat: int = 0) -> None:
        self.calls = Calls()
        self._connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=heartbeat))
        self.port: int = self._connection._impl._transport._sock.getsockname()[1]
        with self.calls.call():
            self.channel = self._connection.channel()

    def take(self, seconds: float) -> None:
        """Do for a while what the broker asks for."""
        self._connection.process_data_events(seconds)

    def close(self) -> None:
        """Both have an answer."""
        with self.calls.call():
            self.channel.close()
        with self.calls.call():
            self._connection.close()


def test_amqp_calls_are_rpcs_and_what_rabbitmq_delivers_is_none(flushed, tmp_path, port):
    """Declarations and confirmed publishing have answers; what comes is acknowledged by the consumer."""
    received: list[bytes] = []

    def acknowledge(
        channel: pika.channel.Channel, method: pika.spec.Basic.Deliver, _: pika.BasicProperties, body: bytes
    ) -> None:
        received.append(body)
        channel.basic_ack(method.delivery_tag)

    flushed.measure(port, setup_turns=3)  # protocol header, StartOk, TuneOk and Open
    with rabbitmq(tmp_path, port):
        publisher, consumer = Amqp(port), Amqp(port)
        with publisher.calls.call():
            publisher.channel.queue_declare("news")
        with publisher.calls.call():
            publisher.channel.confirm_delivery()
        with consumer.calls.call():
            consumer.channel.basic_consume("news", acknowledge)
        for number in range(8):
            consumer.take(PAUSE_S)
            with publisher.calls.call():
                publisher.channel.basic_publish("", "news", b"news")
            wait_until(lambda upto=number + 1: consumer.take(0.01) or len(received) == upto)
        publisher.close()
        consumer.close()
    of_publisher, of_consumer = of_clients(flushed.records_of_ended(), publisher.port)
    tell(rabbitmq_version(), "declarations, confirmed publishing", publisher.calls, of_publisher)
    tell(rabbitmq_version(), "consuming 8 messages", consumer.calls, of_consumer)
    assert_events_are_calls(publisher.calls, of_publisher)
    assert_nothing_is_lost(of_publisher)
    # consuming goes on after a pause: streaming; a connection of pushes is not believed when it closes its channel
    assert_events_are_calls(consumer.calls, of_consumer, missing=3)
    for role in ROLES:
        assert excluded(of_consumer, role)["push"] >= 7


def test_heartbeats_of_amqp_that_alternate_are_taken_for_rpcs(flushed, tmp_path, port):
    """A limit: both ends send one when they have been quiet for a second, as if one answered the other."""
    flushed.measure(port, setup_turns=3)
    with rabbitmq(tmp_path, port):
        client = Amqp(port, heartbeat=2)
        client.take(6)
        client.close()
    records = flushed.records_of_ended()
    tell(rabbitmq_version(), "6 s of heartbeats, one a second from each end", client.calls, records)
    for role in ROLES:
        assert not failures(events(records, role))


def rabbitmq_version() -> str:
    return f"RabbitMQ {version('dpkg-query', '-W', '-f=${Version}', 'rabbitmq-server')}"
