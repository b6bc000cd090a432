from services.gateway.downstream.fetch_in_flight cimport FetchInFlight
from services.gateway.downstream.fetch_questions cimport Part

cpdef beginning_of(FetchInFlight fetch, Part part, object beginning, object missing)

cpdef tuple passing(FetchInFlight fetch, Part part, object found, object beginning, object missing)
