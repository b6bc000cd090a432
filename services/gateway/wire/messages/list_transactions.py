"""ListTransactions (key 66): the transactional ids that a broker coordinates."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    int16,
    int32,
    int64,
    int64s,
    message,
    string,
    strings,
    transaction_name,
)


@message(api_key=66, kind=Kind.REQUEST, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class ListTransactionsRequest(Struct):
    state_filters: list[str] = strings()
    producer_id_filters: list[int] = int64s()
    duration_filter: int = int64(since=1, default=-1)
    transactional_id_pattern: str | None = string(since=2, nullable_since=2, default=None)


@dataclass(slots=True)
class TransactionState(Struct):
    transactional_id: str = transaction_name()
    producer_id: int = int64()
    transaction_state: str = string()


@message(api_key=66, kind=Kind.RESPONSE, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class ListTransactionsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = strings()
    transaction_states: list[TransactionState] = array(TransactionState)
