package drain

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// fifo is a named pipe that is the standard error of a process.
type fifo struct {
	t      *testing.T
	path   string
	reader *os.File
	read   chan struct{} // closed when the reader has left
}

// open begins to read into the log. Opening for both directions waits for no writer.
func (f *fifo) open(log io.Writer) {
	f.t.Helper()
	r, err := os.OpenFile(f.path, os.O_RDWR, 0)
	testsupport.NoError(f.t, err)
	f.reader, f.read = r, make(chan struct{})
	read := f.read
	go func() {
		defer close(read)
		io.Copy(log, r)
	}()
}

func (f *fifo) close() {
	f.reader.Close()
	<-f.read
}

// startWithFIFO starts adbuffer with a FIFO as its standard error. before are commands of a shell that then
// becomes adbuffer.
func startWithFIFO(t *testing.T, before, config string) (*e2e.Process, *fifo) {
	t.Helper()
	f := &fifo{t: t, path: filepath.Join(t.TempDir(), "stderr")}
	testsupport.NoError(t, syscall.Mkfifo(f.path, 0o600))
	log := new(testsupport.LogBuffer)
	f.open(log)
	cmd := exec.Command("sh", "-c", before+` exec "$0" serve --config "$1" 2>"$2"`, e2e.Binary(t), e2e.WriteConfig(t, config), f.path)
	cmd.Env = append(os.Environ(), e2e.Patient()...)
	ab := e2e.LaunchCommand(t, cmd, func(ab *e2e.Process) bool {
		ab.Log = log
		return ab.FindListeners()
	})
	ab.AwaitReady()
	return ab, f
}

// If the reader of its log ends, adbuffer must not die of SIGPIPE at the next line and cut the requests in flight.
func TestAClosedLogEndsNothingAndItsLinesAreCounted(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"as a service manager starts it":  "",
		"SIGPIPE is inherited as ignored": "trap '' PIPE;",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}})
			ab, f := startWithFIFO(t, before, e2e.Single(s.URL(), "breaker: {enabled: false}")+"log: {access: {enabled: true, sample: 1}}\n")
			f.close()
			const requests = 20
			c := ab.Dial()
			for range requests {
				c.Get("/fillbuffer").WantStatus("the SSP's status", http.StatusServiceUnavailable)
			}
			ab.AwaitMetricAbove(requests-1, "adbuffer_log_dropped_total", "reason=blocked")
			dropped := ab.Metric("adbuffer_log_dropped_total", "reason=blocked")

			f.open(ab.Log)
			defer f.close()
			c.Get("/fillbuffer").WantStatus("the SSP's status", http.StatusServiceUnavailable)
			testsupport.Eventually(t, "the log says how many lines it lost", func() bool {
				line, ok := ab.Log.Line("log lines were lost, since standard error was blocked or failed; see adbuffer_log_dropped_total")
				return ok && line["lines"] == dropped
			})
			ab.Terminate(0)
		})
	}
}

// A pipe whose reader reads nothing keeps no process from ending with its exit status.
func TestABlockedLogDelaysNoExit(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	testsupport.NoError(t, err)
	defer r.Close()
	defer w.Close()
	fill(t, w)
	cmd := e2e.Command(t, nil, "serve", "--config", e2e.WriteConfig(t, "server: {listen: nowhere}\n"))
	cmd.Stderr = w
	testsupport.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	testsupport.Eventually(t, "it ends", func() bool { return len(ended) == 1 })
	<-ended
	testsupport.Equal(t, cmd.ProcessState.ExitCode(), 1, "exit status %d")
}

// fill fills a pipe.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	raw, err := w.SyscallConn()
	testsupport.NoError(t, err)
	testsupport.NoError(t, raw.Control(func(fd uintptr) {
		for err := error(nil); err == nil; { // the end of a pipe that Go made does not block
			_, err = syscall.Write(int(fd), []byte(strings.Repeat("x", 4096)))
		}
	}))
}

// The demo and the simulated SSP serve without a reader of their output, and other commands end by SIGPIPE,
// as commands of Unix do.
func TestOnlyCommandsThatServeOutliveTheReaderOfTheirOutput(t *testing.T) {
	t.Parallel()
	run := func(args ...string) *exec.Cmd {
		r, w, err := os.Pipe()
		testsupport.NoError(t, err)
		testsupport.NoError(t, r.Close())
		cmd := e2e.Command(t, nil, args...)
		cmd.Stdout, cmd.Stderr = w, w
		testsupport.NoError(t, cmd.Start())
		testsupport.NoError(t, w.Close())
		return cmd
	}
	demo := run("demo", "--once")
	demo.Wait()
	testsupport.Equal(t, demo.ProcessState.String(), "exit status 0", "the demo: %s")

	plan := run("plan", "--rps", "5000", "--p50", "80ms", "--p99", "250ms")
	plan.Wait()
	testsupport.Equal(t, plan.ProcessState.String(), "signal: broken pipe", "plan: %s")

	addr := testsupport.FreeAddr(t)
	sim := run("sim", "--listen", addr)
	testsupport.Eventually(t, "the simulated SSP serves", func() bool {
		res, err := http.Post(fmt.Sprintf("http://%s/", addr), "application/json", strings.NewReader("{}"))
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	sim.Process.Signal(syscall.SIGTERM)
	sim.Wait()
	testsupport.Equal(t, sim.ProcessState.String(), "exit status 0", "the simulated SSP: %s")
}
