// Package steer lets a test steer a Kafka client: a line on stdin is an order, JSON lines on stdout say what happened.
// The protocol is described in ../steered.py; nothing here knows a Kafka library.
package steer

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const longestLine = 1 << 20

// Client is a Kafka library behind the orders of the tests.
type Client interface {
	// Produce sends all records of the order and returns when it has told what became of each.
	Produce(ctx context.Context, order Order) error
	// Consume reads until the order's count is reached or ctx ends, and commits what it told.
	Consume(ctx context.Context, order Order) error
	// Copy reads the order's count of records in a group, and writes each to every topic, with the offsets, in one
	// transaction.
	Copy(ctx context.Context, order Order) error
	// Ask answers a question of an administrator.
	Ask(ctx context.Context, order Order) (any, error)
}

// Order is one line: a name, and settings as name=value.
type Order struct {
	Name     string
	settings map[string]string
	records  []Record
}

// Record is a record to send; ID is what its acknowledgement is told by.
type Record struct {
	ID        string
	Topic     string
	Key       []byte
	Value     []byte
	Timestamp time.Time
	Headers   []Header
}

// Header is a header of a record.
type Header struct {
	Name  string
	Value []byte
}

// Received is a record that a consumer got.
type Received struct {
	Value     string            `json:"received"`
	Topic     string            `json:"topic"`
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Timestamp int64             `json:"timestamp"`
	Key       *string           `json:"key"`
	Headers   map[string]string `json:"headers"`
}

// Serve carries out one order after the other, until stdin ends.
func Serve(client Client) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		stdin := bufio.NewScanner(os.Stdin)
		stdin.Buffer(nil, longestLine)
		for stdin.Scan() {
			lines <- stdin.Text()
		}
	}()
	for line := range lines {
		order, err := parse(line, lines)
		switch {
		case err != nil:
			failed(err)
		case order.Name != "stop": // otherwise what was to be stopped has ended by itself
			obey(client, order, lines)
		}
	}
}

// obey carries out an order; it ends early when a line says "stop", or when there are no more lines.
func obey(client Client, order Order, lines <-chan string) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan func(), 1)
	go func() {
		answer, err := carryOut(ctx, client, order)
		if err != nil {
			ended <- func() { failed(err) }
		} else {
			ended <- func() { print(map[string]any{"done": answer}) }
		}
	}()
	for {
		select {
		case tell := <-ended:
			tell() // from here on a line is the next order: nobody sends one before
			return
		case _, open := <-lines:
			stop()
			if !open {
				(<-ended)()
				return
			}
		}
	}
}

func carryOut(ctx context.Context, client Client, order Order) (any, error) {
	switch order.Name {
	case "produce":
		return true, client.Produce(ctx, order)
	case "consume":
		return true, client.Consume(ctx, order)
	case "copy":
		return true, client.Copy(ctx, order)
	default:
		return client.Ask(ctx, order)
	}
}

func parse(line string, lines <-chan string) (Order, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return Order{}, errors.New("an empty line is no order")
	}
	order := Order{Name: words[0], settings: map[string]string{}}
	for _, word := range words[1:] {
		name, value, found := strings.Cut(word, "=")
		if !found {
			return order, fmt.Errorf("expected name=value at %q", word)
		}
		order.settings[name] = value
	}
	for number := range order.Int("records", 0) {
		record, err := parseRecord(strconv.Itoa(number), <-lines)
		if err != nil {
			return order, err
		}
		order.records = append(order.records, record)
	}
	return order, nil
}

func parseRecord(id, line string) (Record, error) {
	field := strings.Split(line, "\t")
	if len(field) != 5 {
		return Record{}, fmt.Errorf("a record has 5 fields, not %d", len(field))
	}
	record := Record{ID: id, Topic: field[0]}
	var err, badKey, badValue error
	record.Key, badKey = text(field[1])
	record.Value, badValue = text(field[2])
	if field[3] != "-" {
		var milliseconds int64
		milliseconds, err = strconv.ParseInt(field[3], 10, 64)
		record.Timestamp = time.UnixMilli(milliseconds)
	}
	if field[4] != "-" {
		for _, pair := range strings.Split(field[4], ",") {
			name, value, _ := strings.Cut(pair, ".")
			plainName, badName := text(name)
			plainValue, badHeader := text(value)
			record.Headers = append(record.Headers, Header{string(plainName), plainValue})
			err = errors.Join(err, badName, badHeader)
		}
	}
	return record, errors.Join(err, badKey, badValue)
}

func text(base64Text string) ([]byte, error) {
	if base64Text == "-" {
		return nil, nil
	}
	return base64.StdEncoding.DecodeString(base64Text)
}

// Has says whether the order has this setting.
func (order Order) Has(name string) bool {
	_, found := order.settings[name]
	return found
}

// Text is a setting that the order must have.
func (order Order) Text(name string) string {
	value, found := order.settings[name]
	if !found {
		panic(fmt.Sprintf("%s: %s is missing", order.Name, name))
	}
	return value
}

// List is a setting with commas.
func (order Order) List(name string) []string {
	return strings.Split(order.Text(name), ",")
}

// Flag is a setting that is true or false.
func (order Order) Flag(name string) bool {
	return order.settings[name] == "true"
}

// Int is a number that may be left out.
func (order Order) Int(name string, otherwise int) int {
	value, found := order.settings[name]
	if !found {
		return otherwise
	}
	number, err := strconv.Atoi(value)
	if err != nil {
		panic(fmt.Sprintf("%s: %s is no number: %q", order.Name, name, value))
	}
	return number
}

// Each gives each record to send: those of the order, or else made-up ones at its rate until ctx ends.
func (order Order) Each(ctx context.Context, send func(Record)) {
	for _, record := range order.records {
		send(record)
	}
	if !order.Has("ids") {
		return
	}
	topics, rate, keys := order.List("topics"), order.Int("rate", 100), order.Int("keys", 16)
	start := time.Now()
	for sent := 0; ; sent++ {
		due := start.Add(time.Duration(sent) * time.Second / time.Duration(rate))
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		id := fmt.Sprintf("%s-%d", order.Text("ids"), sent)
		key := fmt.Sprintf("key-%d", sent%keys)
		send(Record{ID: id, Topic: topics[sent%len(topics)], Key: []byte(key), Value: []byte(id)})
	}
}

// Acked tells that a record was delivered; an offset below 0 means that the broker did not say.
func Acked(id, topic string, partition int32, offset int64) {
	print(map[string]any{"acked": id, "topic": topic, "partition": partition, "offset": offset})
}

// Got tells a record that was received.
func Got(record Received) {
	print(record)
}

// Milliseconds is a record's timestamp, -1 without one.
func Milliseconds(timestamp time.Time) int64 {
	if timestamp.IsZero() {
		return -1
	}
	return timestamp.UnixMilli()
}

// Text is text that may be missing.
func Text(bytes []byte) *string {
	if bytes == nil {
		return nil
	}
	text := string(bytes)
	return &text
}

// Error tells an error as the application sees it; the order goes on.
func Error(at string, err error) {
	print(map[string]any{"error": err.Error(), "at": at})
}

func failed(err error) {
	print(map[string]any{"failed": err.Error()})
}

var printing sync.Mutex

func print(line any) {
	printing.Lock()
	defer printing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		panic(err)
	}
}
