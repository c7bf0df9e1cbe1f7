// Package rig starts adbuffer, simulated SSPs, load generators and other proxies for load tests.
//
// Each of them has a process of its own. So they share neither a garbage collector nor a scheduler,
// and a test can assign a core to each.
package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Rig owns processes and a directory. Its methods are safe for concurrent use.
type Rig struct {
	Dir string // holds configurations, certificates and logs; Close removes it

	mu       sync.Mutex // guards the fields below
	procs    []*Process // in order of start
	reserved []func()   // release the ports of FreeAddr
}

// New returns a Rig. The caller closes it.
func New() (*Rig, error) {
	dir, err := os.MkdirTemp("", "adbuffer-loadtest-")
	if err != nil {
		return nil, err
	}
	return &Rig{Dir: dir}, nil
}

// Close ends all processes, the last one first, releases the ports and removes the directory.
func (r *Rig) Close() {
	r.StopAll()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, release := range r.reserved {
		release()
	}
	r.reserved = nil
	os.RemoveAll(r.Dir)
}

// StopAll stops all processes in reverse order of start.
func (r *Rig) StopAll() {
	r.mu.Lock()
	procs := r.procs
	r.procs = nil
	r.mu.Unlock()
	for i := len(procs) - 1; i >= 0; i-- {
		procs[i].Stop()
	}
}

// Write creates a file in the directory and returns its path. A random text takes the place of
// the last * in pattern.
func (r *Rig) Write(pattern, text string) (string, error) {
	file, err := os.CreateTemp(r.Dir, pattern)
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(text)
	return file.Name(), errors.Join(err, file.Close())
}

// Process is a started process.
type Process struct {
	Name string
	PID  int

	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// Command describes a process to start.
type Command struct {
	Name  string
	Argv  []string
	Env   []string // in addition to the environment of this process
	Cores string   // in the syntax of taskset; "" is all

	stdout *os.File // nil is the file of the standard error
}

// Start starts a process. Its output goes to a file in the directory.
func (r *Rig) Start(c Command) (*Process, error) {
	argv := c.Argv
	if c.Cores != "" {
		argv = append([]string{"taskset", "-c", c.Cores}, argv...)
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", c.Name, ErrMissing, err)
	}
	log, err := os.CreateTemp(r.Dir, c.Name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own descriptor
	cmd := exec.Command(path, argv[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	if c.stdout != nil {
		cmd.Stdout = c.stdout
	}
	// A process must not outlive this one, and Ctrl-C must reach only this one.
	cmd.SysProcAttr = processAttributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	p := &Process{Name: c.Name, PID: cmd.Process.Pid, cmd: cmd, log: log.Name(), ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its log shows the reason of its end
		close(p.ended)
	}()
	r.mu.Lock()
	r.procs = append(r.procs, p)
	r.mu.Unlock()
	return p, nil
}

// Stop terminates the process. It kills the process after two seconds.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return
	case <-time.After(2 * time.Second):
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Await waits until the process exits and returns its exit status.
func (p *Process) Await(timeout time.Duration) (status int, err error) {
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(timeout):
		return 0, fmt.Errorf("%s did not end within %v", p.Name, timeout)
	}
}

// Log returns the output of the process.
func (p *Process) Log() []byte {
	b, _ := os.ReadFile(p.log)
	return b
}

// Running reports whether the process has not exited.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// LastLog returns the last output of the process.
func (p *Process) LastLog() []byte {
	const most = 2000
	text := bytes.TrimSpace(p.Log())
	return text[max(0, len(text)-most):]
}

// AwaitPort waits until addr accepts connections.
func (p *Process) AwaitPort(ctx context.Context, addr string, timeout time.Duration) error {
	return p.await(ctx, timeout, "listen on "+addr, func() bool {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
}

// await calls ok until it returns true.
func (p *Process) await(ctx context.Context, timeout time.Duration, what string, ok func() bool) error {
	end := time.Now().Add(timeout)
	for {
		if ok() {
			return nil
		}
		if !p.Running() {
			return fmt.Errorf("%s ended early: %s", p.Name, p.LastLog())
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s did not %s within %v: %s", p.Name, what, timeout, p.LastLog())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
