package steer

import "strings"

// Entrance is where a client enters, and as whom.
type Entrance struct {
	Address  string
	User     string
	Password string
}

// EntranceOf takes HOST:PORT, or USER:PASSWORD@HOST:PORT.
func EntranceOf(bootstrap string) Entrance {
	at := strings.LastIndex(bootstrap, "@")
	if at < 0 {
		return Entrance{Address: bootstrap}
	}
	user, password, _ := strings.Cut(bootstrap[:at], ":")
	return Entrance{bootstrap[at+1:], user, password}
}
