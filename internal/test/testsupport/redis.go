package testsupport

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// Redis is a redis-server process that keeps nothing on disk. Its methods are for one goroutine.
type Redis struct {
	t    testing.TB
	args []string
	*Daemon

	// Addr is the server's TCP address on loopback, and Socket the path of its Unix socket. Both
	// stay the same over restarts.
	Addr, Socket string
}

// StartRedis starts a server for the length of the test. args are further options of the
// server, such as "--requirepass", "secret".
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	s := &Redis{t: t, args: args, Addr: FreeAddr(t), Socket: filepath.Join(t.TempDir(), "redis.sock")}
	s.Restart()
	return s
}

// Restart starts the server, without data, after Kill.
func (s *Redis) Restart() {
	s.t.Helper()
	args := append([]string{
		"--bind", "127.0.0.1", "--port", Port(s.t, s.Addr), "--unixsocket", s.Socket, "--save", "", "--appendonly", "no", "--dir", filepath.Dir(s.Socket),
	}, s.args...)
	s.Daemon = StartDaemon(s.t, "unix", s.Socket, exec.Command(Needs(s.t, "redis-server", "redis-server"), args...))
}

// Pause stops the process: the kernel still accepts connections, but the server does not respond.
func (s *Redis) Pause() { s.Signal(syscall.SIGSTOP) }

// Resume ends a Pause. The server now responds to the commands that were sent meanwhile.
func (s *Redis) Resume() { s.Signal(syscall.SIGCONT) }

// Do runs one command.
func (s *Redis) Do(name string, args ...any) any {
	s.t.Helper()
	c, err := redis.Dial("unix", s.Socket)
	NoError(s.t, err)
	defer c.Close()
	reply, err := c.Do(name, args...)
	MustTrue(s.t, err == nil, "%s: %v", name, err)
	return reply
}
