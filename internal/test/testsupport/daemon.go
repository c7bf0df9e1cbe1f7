package testsupport

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"testing"
)

// Daemon is a process that runs for the length of a test.
type Daemon struct {
	T     testing.TB
	Cmd   *exec.Cmd
	Log   *LogBuffer // its standard error, and its standard output
	ended chan struct{}
}

// Launch runs cmd, and returns when ready returns true.
func Launch(t testing.TB, cmd *exec.Cmd, ready func(*Daemon) bool) *Daemon {
	t.Helper()
	d := &Daemon{T: t, Cmd: cmd, Log: new(LogBuffer), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = d.Log, d.Log
	NoError(t, cmd.Start())
	go func() {
		cmd.Wait()
		close(d.ended)
	}()
	t.Cleanup(func() {
		d.Kill()
		if t.Failed() {
			t.Logf("%s:\n%s", cmd.Path, Tail(d.Log.String(), 16<<10))
		}
	})
	Eventually(t, cmd.Path+" is ready", func() bool {
		MustTrue(t, !d.HasEnded(), "%s ended", cmd.Path)
		return ready(d)
	})
	return d
}

// StartDaemon runs a server of another project, and returns when it accepts connections on addr.
func StartDaemon(t testing.TB, network, addr string, cmd *exec.Cmd) *Daemon {
	t.Helper()
	return Launch(t, cmd, func(*Daemon) bool {
		c, err := net.Dial(network, addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// Signal sends s to the process, which may have ended.
func (d *Daemon) Signal(s os.Signal) { d.Cmd.Process.Signal(s) }

// Kill ends the process without notice, if it has not ended.
func (d *Daemon) Kill() {
	d.Signal(os.Kill)
	<-d.ended
}

// Ended is closed when the process has ended.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }

// HasEnded reports whether the process has ended.
func (d *Daemon) HasEnded() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// Output runs cmd to its end, and returns its standard output.
func Output(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	MustTrue(t, err == nil, "%.200q: %v: %s%s", cmd.Args, err, Tail(string(out), 2000), Tail(problem.String(), 2000))
	return string(out)
}
