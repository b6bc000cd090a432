"""InitProducerId (key 22): the identity of an idempotent or transactional producer."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, boolean, int16, int32, int64, message, transaction_name


@message(api_key=22, kind=Kind.REQUEST, versions=(0, 5), flexible=2)
@dataclass(slots=True)
class InitProducerIdRequest(Struct):
    transactional_id: str | None = transaction_name(nullable_since=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)
    enable2_pc: bool = boolean(since=6)
    keep_prepared_txn: bool = boolean(since=6)


@message(api_key=22, kind=Kind.RESPONSE, versions=(0, 5), flexible=2)
@dataclass(slots=True)
class InitProducerIdResponse(Struct):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(since=6, default=-1)
    ongoing_txn_producer_epoch: int = int16(since=6, default=-1)
