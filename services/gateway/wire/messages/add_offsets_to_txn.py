"""AddOffsetsToTxn (key 25): a transaction is about to commit offsets of a group."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, group_name, int16, int32, int64, message, transaction_name


@message(api_key=25, kind=Kind.REQUEST, versions=(0, 4), flexible=3)
@dataclass(slots=True)
class AddOffsetsToTxnRequest(Struct):
    transactional_id: str = transaction_name()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = group_name()


@message(api_key=25, kind=Kind.RESPONSE, versions=(0, 4), flexible=3)
@dataclass(slots=True)
class AddOffsetsToTxnResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
