package rig

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Process is a started process.
type Process struct {
	Name string
	PID  int

	rig   *Rig
	cmd   *exec.Cmd
	log   string
	ended chan struct{}

	pipe    *os.File       // the reader of a named pipe, from which the log is copied; nil if the process writes the log itself
	mu      sync.Mutex     // held while a copy is started, and while its end is awaited
	copying sync.WaitGroup // the goroutine that copies the log
}

// Command describes a process to start.
type Command struct {
	Name  string
	Argv  []string
	Env   []string // in addition to the environment of this process
	Cores string   // in the syntax of taskset; "" is all
	Piped bool     // its output is a named pipe, whose reader LoseLog closes for a while

	stdout *os.File // nil is the file of the standard error
}

// StartProcess starts a process. Its output goes to a file in the directory.
func (r *Rig) StartProcess(c Command) *Process {
	argv := c.Argv
	if c.Cores != "" {
		argv = append([]string{"taskset", "-c", c.Cores}, argv...)
	}
	log := Must(os.CreateTemp(r.Dir, c.Name+"-*.log"))(r)
	defer log.Close() // the process has its own descriptor
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	p := &Process{Name: c.Name, rig: r, cmd: cmd, log: log.Name(), ended: make(chan struct{})}
	cmd.Stderr = log
	if c.Piped {
		r.Check(syscall.Mkfifo(p.pipeName(), 0o600))
		// A reader would end at once if no writer had opened the pipe yet.
		open := Must(os.OpenFile(p.pipeName(), os.O_RDWR, 0))(r)
		defer open.Close()
		r.Check(p.copyLog())
		pipe := Must(os.OpenFile(p.pipeName(), os.O_WRONLY, 0))(r)
		defer pipe.Close()
		cmd.Stderr = pipe
	}
	cmd.Stdout = cmd.Stderr
	if c.stdout != nil {
		cmd.Stdout = c.stdout
	}
	// The new process must not outlive this process, and Ctrl-C must reach only this process.
	cmd.SysProcAttr = processAttributes()
	if err := cmd.Start(); err != nil {
		r.Check(fmt.Errorf("%s: %w", c.Name, err))
	}
	p.PID = cmd.Process.Pid
	go func() {
		_ = cmd.Wait() // the log of the process shows why it ended
		p.mu.Lock()
		defer p.mu.Unlock()
		p.copying.Wait()
		close(p.ended)
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.procs = append(r.procs, p)
	return p
}

func (p *Process) pipeName() string { return p.log + ".pipe" }

// copyLog copies from the named pipe to the log until the pipe ends.
func (p *Process) copyLog() error {
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	// Otherwise opening a pipe that has no writer would block.
	pipe, err := os.OpenFile(p.pipeName(), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		log.Close()
		return err
	}
	p.pipe = pipe
	p.copying.Go(func() {
		_, _ = io.Copy(log, pipe)
		log.Close()
	})
	return nil
}

// LoseLog leaves the named pipe of the process without a reader while during runs. What the process writes to its log
// meanwhile is lost.
func (p *Process) LoseLog(during func()) {
	p.pipe.Close()
	during()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Running() {
		p.rig.Check(p.copyLog())
	}
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

// AwaitEnd waits until the process exits and returns its exit status.
func (p *Process) AwaitEnd(timeout time.Duration) (status int, err error) {
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
	const maxBytes = 2000
	text := bytes.TrimSpace(p.Log())
	return text[max(0, len(text)-maxBytes):]
}

// AwaitPort waits until addr accepts connections.
func (p *Process) AwaitPort(addr string, timeout time.Duration) {
	p.Await(timeout, "listen on "+addr, func() bool {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
}

// Await calls ok until it returns true.
func (p *Process) Await(timeout time.Duration, what string, ok func() bool) {
	for end := time.Now().Add(timeout); !ok(); Sleep(p.rig.Ctx, 20*time.Millisecond) {
		p.rig.Check(p.rig.Ctx.Err())
		if !p.Running() {
			p.rig.Check(fmt.Errorf("%s ended early: %s", p.Name, p.LastLog()))
		}
		if time.Now().After(end) {
			p.rig.Check(fmt.Errorf("%s did not %s within %v: %s", p.Name, what, timeout, p.LastLog()))
		}
	}
}
