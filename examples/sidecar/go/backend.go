// A backend beside a sidecar of Kafka Mesh. The sidecar posts orders in batches; each order gets a result.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
)

type record struct {
	Key   string
	Value map[string]float64
}

func resultOf(order record) map[string]string {
	count, isThere := order.Value["count"]
	if !isThere {
		return map[string]string{"status": "DEAD_LETTER", "stacktrace": "an order needs a count"}
	}
	fmt.Println(order.Key, "pays", order.Value["price"]*count)
	return map[string]string{"status": "SUCCESS"}
}

func main() {
	http.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("POST /kafka/records", func(response http.ResponseWriter, request *http.Request) {
		var orders []record
		if err := json.NewDecoder(request.Body).Decode(&orders); err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		results := []map[string]string{}
		for _, order := range orders {
			results = append(results, resultOf(order))
		}
		response.Header().Set("Content-Type", "application/json")
		json.NewEncoder(response).Encode(map[string]any{"results": results})
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:8081", nil))
}
