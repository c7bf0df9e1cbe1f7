package load

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
)

func TestUsageOfThisProcessIsRead(t *testing.T) {
	before, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if before.RSS < 1<<20 || before.PeakRSS < before.RSS || before.Files < 3 {
		t.Errorf("%+v", before)
	}
	// Work until the clock of /proc has moved.
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		now, err := Read(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now.CPU > before.CPU {
			return
		}
	}
	t.Error("30 s of work used no CPU time")
}

func TestTreeHasTheChildren(t *testing.T) {
	testsupport.Needs(t, "util-linux", "taskset")
	cmd := exec.Command("sh", "-c", "sleep 60 & sleep 60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var kids []int
	for end := time.Now().Add(30 * time.Second); len(kids) < 1 && time.Now().Before(end); {
		kids = children(cmd.Process.Pid)
	}
	defer func() {
		for _, pid := range children(cmd.Process.Pid) {
			if p, err := os.FindProcess(pid); err == nil {
				p.Kill()
			}
		}
	}()
	one, err := Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := ReadTree(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Files <= one.Files {
		t.Errorf("a tree of %d open files, its root has %d", tree.Files, one.Files)
	}
}

func TestProcessThatIsNotThereIsAnError(t *testing.T) {
	if _, err := Read(1 << 30); err == nil {
		t.Error("it was read")
	}
}

func TestBusyShareIsOfTheCoresAskedFor(t *testing.T) {
	type core = struct{ busy, all float64 }
	before := cores{0: core{100, 1000}, 1: core{100, 1000}}
	after := cores{0: core{200, 1100}, 1: core{100, 1100}}
	if got := after.BusySince(before, []int{0}); got != 1 {
		t.Errorf("core 0 was busy %.2f, want 1", got)
	}
	if got := after.BusySince(before, nil); got != 0.5 {
		t.Errorf("both were busy %.2f, want 0.5", got)
	}
	if len(readCores()) == 0 {
		t.Error("this machine has no cores")
	}
}

// A machine may have more cores than the generator has threads.
func TestGeneratorIsSaturatedWhenAllItsThreadsRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	g := gauge{began: time.Now().Add(-time.Second), cpu: processCPU() - 990*time.Millisecond}
	if r := g.result(); r.Busiest <= maxBusy {
		t.Errorf("busy %.2f of the time, want more than %.2f", r.Busiest, maxBusy)
	}
}
