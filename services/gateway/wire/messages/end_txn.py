"""EndTxn (key 26): commit or abort. From version 5 on the answer brings the producer's next epoch (KIP-890)."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, boolean, int16, int32, int64, message, transaction_name


@message(api_key=26, kind=Kind.REQUEST, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class EndTxnRequest(Struct):
    transactional_id: str = transaction_name()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(api_key=26, kind=Kind.RESPONSE, versions=(0, 5), flexible=3)
@dataclass(slots=True)
class EndTxnResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(since=5, default=-1, ignorable=True)
    producer_epoch: int = int16(since=5, default=-1, ignorable=True)
