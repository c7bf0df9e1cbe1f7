package testsupport

import (
	"net"
	"os/exec"
	"syscall"
	"testing"
)

// Daemon is a server of another project that runs for the length of a test.
type Daemon struct {
	t     testing.TB
	cmd   *exec.Cmd
	ended chan struct{}
}

// StartDaemon runs cmd, of a Debian package, and returns when it accepts connections on addr.
func StartDaemon(t testing.TB, pkg, network, addr string, cmd *exec.Cmd) *Daemon {
	t.Helper()
	log := new(LogBuffer)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; install the Debian package %s", err, pkg)
	}
	d := &Daemon{t: t, cmd: cmd, ended: make(chan struct{})}
	go func() {
		cmd.Wait()
		close(d.ended)
	}()
	t.Cleanup(func() {
		d.Kill()
		if t.Failed() {
			t.Logf("%s:\n%s", cmd.Path, Tail(log.String(), 4<<10))
		}
	})
	Eventually(t, cmd.Path+" listens", func() bool {
		select {
		case <-d.ended:
			t.Fatalf("%s ended: %s", cmd.Path, log)
		default:
		}
		c, err := net.Dial(network, addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return d
}

// Signal sends s to the process, which may have ended.
func (d *Daemon) Signal(s syscall.Signal) {
	d.cmd.Process.Signal(s)
}

// Kill ends the process without notice, if it has not ended.
func (d *Daemon) Kill() {
	d.Signal(syscall.SIGKILL)
	<-d.ended
}
