package fleet

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"

	"adbuffer/internal/test/testsupport"
)

// wrapped6 is an error of a command in a script, in the words of Redis 6.
func wrapped6(e string) string {
	return "ERR Error running script (call to f_0f2c5b8c1c5b2f7d2b6f1d8f9e0c7a6b5d4e3f21): @user_script:88: @user_script: 88: -" + e
}

// Errors of the server end the session, and errors of a key do not: other SSPs' leases need it. Redis 6
// wraps the errors of a script's commands, and Redis 7 returns them with the script's name at the end.
func TestErrorsOfTheServerAreToldFromErrorsOfAKey(t *testing.T) {
	t.Parallel()
	server := []string{
		"READONLY You can't write against a read only replica.",
		"LOADING Redis is loading the dataset in memory",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"CLUSTERDOWN Hash slot not served",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"NOAUTH Authentication required.",
	}
	for _, text := range server {
		for _, form := range []string{
			text, wrapped6(text), text + " script: 0f2c5b8c, on @user_script:88.",
			"ERR user_script:88: " + text + " script: 0f2c5b8c, on @user_script:88.", "ERR @user_script: 88: -" + text,
		} {
			testsupport.True(t, !concernsKey(redis.Error(form)), "of one key: %s", form)
		}
	}
	for _, text := range []string{
		"ERR max number of clients reached", "ERR Protocol error: unauthenticated multibulk length",
		"ERR unknown command `EVALSHA`, with args beginning with: ", "BUSY Redis is busy running a script.",
	} {
		testsupport.True(t, !concernsKey(redis.Error(text)), "of one key: %s", text)
	}
	testsupport.True(t, !concernsKey(io.EOF), "the end of a connection is of one key")
	for _, text := range []string{
		"STALE a later call was here first",
		"WRONGTYPE Operation against a key holding the wrong kind of value",
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 0f2c5b8c, on @user_script:36.",
		"ERR Error running script (call to f_0f2c5b8c): @user_script:36: WRONGTYPE Operation against a key holding the wrong kind of value",
		"ERR Error running script (call to f_0f2c5b8c): @user_script:36: ERR hash value is not an integer",
		"ERR Error running script (call to f_0f2c5b8c): @user_script:29: user_script:29: attempt to perform arithmetic on local 'a' (a nil value)",
		"ERR user_script:29: attempt to perform arithmetic on local 'a' (a nil value) script: 0f2c5b8c, on @user_script:29.",
	} {
		testsupport.True(t, concernsKey(redis.Error(text)), "of the server: %s", text)
	}
}

// scripted is a server that responds to each lease with the line of reply, and to all else with OK.
type scripted struct {
	net.Listener
	reply    atomic.Pointer[string]
	sessions atomic.Int64 // connections so far
}

func startScripted(t *testing.T) *scripted {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "scripted.sock"))
	testsupport.NoError(t, err)
	s := &scripted{Listener: l}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.sessions.Add(1)
			served.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); served.Wait() })
	return s
}

func (s *scripted) serve(c net.Conn) {
	defer c.Close()
	for r := bufio.NewReader(c); ; {
		words, err := readCommand(r)
		if err != nil {
			return
		}
		reply := "+OK\r\n"
		if strings.HasPrefix(words[0], "EVAL") {
			reply = *s.reply.Load()
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}

// readCommand reads an array of strings.
func readCommand(r *bufio.Reader) (words []string, err error) {
	size := func() (n int) {
		line, e := r.ReadString('\n')
		if err = e; err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(line[1:]))
		}
		return n
	}
	for n := size(); err == nil && len(words) < n; {
		b := make([]byte, size()+len("\r\n"))
		if err == nil {
			_, err = io.ReadFull(r, b)
		}
		words = append(words, strings.TrimSpace(string(b)))
	}
	return words, err
}

// If the server has become a replica, or refuses all writes for another reason, the session ends: the address may
// lead to another server by now.
func TestAServerThatRefusesEveryLeaseIsDialledAgain(t *testing.T) {
	t.Parallel()
	const granted = "*3\r\n:0\r\n$4\r\n1000\r\n:1\r\n"
	for name, text := range map[string]string{
		"a replica, Redis 6":   wrapped6("READONLY You can't write against a read only replica."),
		"a replica, Redis 7":   "READONLY You can't write against a read only replica. script: 0f2c5b8c, on @user_script:88.",
		"out of memory":        wrapped6("OOM command not allowed when used memory > 'maxmemory'."),
		"no snapshots":         wrapped6("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."),
		"too many connections": "ERR max number of clients reached",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startScripted(t)
			good, bad := granted, "-"+text+"\r\n"
			s.reply.Store(&good)
			m := join(t, Redis{Network: "unix", Address: s.Addr().String()}, limit, burst, toleratesStalls)
			m.startLoad(t, 100)
			m.awaitConnected(t, true)
			testsupport.Equal(t, s.sessions.Load(), 1, "%d connections while all is well")
			s.reply.Store(&bad)
			testsupport.Eventually(t, "dialled again, twice", func() bool { return s.sessions.Load() >= 3 })
			testsupport.Equal(t, m.logged("Redis is away"), 1, "logged %d times that Redis is away")
			s.reply.Store(&good)
			testsupport.Eventually(t, "it is back", func() bool { return m.logged("Redis is back") == 1 })
		})
	}
}

// An error of one key keeps the session, in the words of Redis 6 too.
func TestAnErrorOfOneKeyKeepsTheSession(t *testing.T) {
	t.Parallel()
	s := startScripted(t)
	bad := "-ERR Error running script (call to f_0f2c5b8c): @user_script:36: WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
	s.reply.Store(&bad)
	m := join(t, Redis{Network: "unix", Address: s.Addr().String()}, limit, burst, toleratesStalls)
	m.startLoad(t, 100)
	testsupport.Eventually(t, "ten calls failed", func() bool { return m.failures.Load() >= 10 })
	testsupport.Equal(t, s.sessions.Load(), 1, "%d connections")
	testsupport.Equal(t, m.logged("no lease for an SSP"), 1, "logged %d times")
}

// After a failover the address leads to another server. The old server becomes its replica and keeps its sessions,
// so adbuffer must leave them, also if the error has the words of Redis 6.
func TestReplicasFollowAFailover(t *testing.T) {
	t.Parallel()
	for name, words := range map[string]func(line string) string{
		"Redis 7": func(line string) string { return line },
		"the words of Redis 6": func(line string) string {
			text, ok := strings.CutPrefix(line, "-READONLY ")
			if !ok {
				return line
			}
			text, _, _ = strings.Cut(text, " script: ")
			return "-" + wrapped6("READONLY "+text) + "\r\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := testsupport.StartRedis(t, "--repl-diskless-sync-delay", "0"), testsupport.StartRedis(t)
			host, port, _ := strings.Cut(first.Addr, ":")
			second.Do("REPLICAOF", host, port)
			testsupport.Eventually(t, "replication", func() bool {
				return strings.Contains(fmt.Sprintf("%s", second.Do("INFO", "replication")), "master_link_status:up")
			})
			f := startFront(t, first.Socket, words)
			m := join(t, Redis{Network: "unix", Address: f.Addr().String()}, limit, burst, toleratesStalls)
			m.startLoad(t, 2*limit)
			m.awaitConnected(t, true)

			host, port, _ = strings.Cut(second.Addr, ":")
			f.to.Store(&second.Socket)
			second.Do("REPLICAOF", "NO", "ONE")
			first.Do("REPLICAOF", host, port)
			sent := m.sent.Load()
			testsupport.Eventually(t, "leases of the new server", func() bool {
				return f.sessions.Load() == 2 && m.connected() && m.sent.Load() > sent+2*burst
			})
			testsupport.Equal(t, f.sessions.Load(), 2, "%d connections, want one to each server")
		})
	}
}

// front passes connections on to the server whose socket is to, and its replies back, each line in other
// words.
type front struct {
	net.Listener
	to       atomic.Pointer[string]
	sessions atomic.Int64
}

func startFront(t *testing.T, to string, words func(line string) string) *front {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "front.sock"))
	testsupport.NoError(t, err)
	f := &front{Listener: l}
	f.to.Store(&to)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("unix", *f.to.Load())
			if err != nil {
				c.Close()
				continue
			}
			f.sessions.Add(1)
			served.Go(func() { io.Copy(up, c); up.Close() })
			served.Go(func() {
				defer c.Close()
				for r := bufio.NewReader(up); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					if _, err := io.WriteString(c, words(line)); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); served.Wait() })
	return f
}
