// Command login writes values to topics as a client who proves who it is, and prints all values that the topics have:
// "login LIBRARY BOOTSTRAP CA MECHANISM TOPIC,TOPIC VALUE...", with "" for no mechanism. Each topic has one partition.
// The environment has NAME and SECRET (a password or a token) of a user, or the files CERTIFICATE and KEY. LOCAL is the
// address that the client connects from, if it is set.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

const (
	patience  = 60 * time.Second
	arguments = 6
)

// A pass writes the values to each topic, and returns as many values of each.
type pass func(ctx context.Context, door door, topics, values []string) ([]string, error)

// door is where and how a client comes in.
type door struct {
	bootstrap string
	tls       *tls.Config
	mechanism string
	name      string
	secret    string
	local     net.Addr
}

var libraries = map[string]pass{"franz-go": byFranz, "sarama": bySarama}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(given []string) error {
	if len(given) < arguments || libraries[given[0]] == nil {
		return fmt.Errorf("expected LIBRARY BOOTSTRAP CA MECHANISM TOPIC,TOPIC VALUE...; got %q", given)
	}
	trusts, err := tlsConfig(given[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	entrance := door{given[1], trusts, given[3], os.Getenv("NAME"), os.Getenv("SECRET"), nil}
	if local := os.Getenv("LOCAL"); local != "" {
		entrance.local = &net.TCPAddr{IP: net.ParseIP(local)}
	}
	found, err := libraries[given[0]](ctx, entrance, strings.Split(given[4], ","), given[5:])
	if err != nil {
		return err
	}
	for _, value := range found {
		fmt.Println(value)
	}
	return nil
}

func tlsConfig(authority string) (*tls.Config, error) {
	authorities, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s has no certificate", authority)
	}
	if certificate := os.Getenv("CERTIFICATE"); certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, os.Getenv("KEY"))
		if err != nil {
			return nil, err
		}
		// as other libraries do, also where the gateway does not name the certificate's authority
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config, nil
}
