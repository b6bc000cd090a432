// Command login writes values as a user who proves who they are: "login LIBRARY BOOTSTRAP CA MECHANISM TOPIC COUNT".
// The secret, a password of alice or a token, comes by the environment variable SECRET.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"time"
)

const (
	user      = "alice"
	patience  = 60 * time.Second
	arguments = 6
)

// A write returns when all values are acknowledged.
type write func(ctx context.Context, door door, topic string, values []string) error

// door is where and how a client logs in.
type door struct {
	bootstrap string
	trusts    *tls.Config
	mechanism string
	secret    string
}

var libraries = map[string]write{"franz-go": byFranz, "sarama": bySarama}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(given []string) error {
	if len(given) != arguments || libraries[given[0]] == nil {
		return fmt.Errorf("expected LIBRARY BOOTSTRAP CA MECHANISM TOPIC COUNT; got %q", given)
	}
	authorities, err := os.ReadFile(given[2])
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return fmt.Errorf("%s has no certificate", given[2])
	}
	count, err := strconv.Atoi(given[5])
	if err != nil {
		return err
	}
	values := make([]string, count)
	for n := range values {
		values[n] = fmt.Sprintf("value %d", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	entrance := door{given[1], &tls.Config{RootCAs: pool}, given[3], os.Getenv("SECRET")}
	return libraries[given[0]](ctx, entrance, given[4], values)
}
