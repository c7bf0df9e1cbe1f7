package fleet

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/gomodule/redigo/redis"

	"adbuffer/internal/wire/handshake"
)

//go:embed lease.lua
var leaseScript string

// leaseSHA is the script's name in Redis.
var leaseSHA = redis.NewScript(1, leaseScript).Hash()

// Redis says how to connect to Redis.
type Redis struct {
	Network  string // "tcp" or "unix"
	Address  string // host:port, or a path
	Username string // "" = the default user
	DB       int
	// TLS returns the configuration of a connection that is opened, with a ServerName; nil =
	// cleartext.
	TLS func() *tls.Config
}

// session is a connection to Redis, for one goroutine. A Fleet has at most one session.
type session struct {
	redis.Conn
	replies *replies
}

// open connects and logs in. It fails if ctx ends.
func (r *Redis) open(ctx context.Context, password string) (*session, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, r.Network, r.Address)
	if err != nil {
		return nil, err
	}
	if r.TLS != nil {
		c, err = r.encrypt(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
	}
	s := &session{replies: &replies{Conn: c}}
	s.Conn = redis.NewConn(s.replies, 0, 0) // ctx bounds both
	err = s.until(ctx, func() error {
		if password == "" {
			if _, err := s.Do("PING"); err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
				return fmt.Errorf("%w; see fleet.redis.password_file", err)
			}
		} else {
			login := []any{password}
			if r.Username != "" {
				login = []any{r.Username, password}
			}
			if _, err := s.Do("AUTH", login...); err != nil {
				return fmt.Errorf("AUTH: %w; see fleet.redis.password_file", err)
			}
		}
		if r.DB != 0 {
			if _, err := s.Do("SELECT", r.DB); err != nil {
				return fmt.Errorf("SELECT %d: %w", r.DB, err)
			}
		}
		return nil
	})
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// encrypt returns a TLS connection over c. If it fails, it closes c.
func (r *Redis) encrypt(ctx context.Context, c net.Conn) (net.Conn, error) {
	t := tls.Client(c, handshake.VerifyServer(r.TLS()))
	if err := t.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// until runs one exchange. If ctx ends first, it closes the connection.
func (s *session) until(ctx context.Context, exchange func() error) error {
	s.replies.reset()
	stop := context.AfterFunc(ctx, func() { s.replies.Close() })
	err := exchange()
	if !stop() {
		return fmt.Errorf("no reply in time: %w", ctx.Err())
	}
	return err
}

func (s *session) close() { s.Conn.Close() }

// command is one command of an exchange.
type command struct {
	name string
	args []any
}

// pipeline sends all commands together, and returns a reply or an error for each. err is set if the
// connection cannot be used any more.
func (s *session) pipeline(ctx context.Context, commands []command) (replies []any, errs []error, err error) {
	replies, errs = make([]any, len(commands)), make([]error, len(commands))
	err = s.until(ctx, func() error {
		for _, c := range commands {
			if err := s.Send(c.name, c.args...); err != nil {
				return err
			}
		}
		if err := s.Flush(); err != nil {
			return err
		}
		for i := range commands {
			replies[i], errs[i] = s.Receive()
			if s.Err() != nil {
				return s.Err()
			}
		}
		return nil
	})
	return replies, errs, err
}

func unknownScript(err error) bool {
	var e redis.Error
	return errors.As(err, &e) && strings.HasPrefix(string(e), "NOSCRIPT ")
}

// concernsKey reports whether an error concerns one key only: the key has another type, a later call has overtaken
// this one, or the script cannot use the key's contents. All other errors concern the whole server, such as READONLY
// of a server that has become a replica, or an ERR that names no script.
func concernsKey(err error) bool {
	e, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	switch errorCode(string(e)) {
	case "WRONGTYPE", "STALE":
		return true
	case "ERR":
		return strings.Contains(string(e), "user_script")
	}
	return false
}

// errorCode returns the code of an error of Redis. For a command that failed in a script, that is the
// code of the command's error. Redis 7 returns that error itself. Redis 6 wraps it:
//
//	ERR Error running script (call to f_…): @user_script:88: @user_script: 88: -READONLY You can't write …
//	ERR Error running script (call to f_…): @user_script:34: WRONGTYPE Operation against a key …
func errorCode(text string) string {
	code, rest, _ := strings.Cut(text, " ")
	if code != "ERR" {
		return code
	}
	position := false // the previous word was the end of a position in the script
	for word := range strings.FieldsSeq(rest) {
		wrapped, dashed := strings.CutPrefix(word, "-")
		if (dashed || position) && isCode(wrapped) {
			return wrapped
		}
		position = strings.HasSuffix(word, ":")
	}
	return code
}

// isCode reports whether a word looks like an error code: at least two capital letters.
func isCode(word string) bool {
	return len(word) >= 2 && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
