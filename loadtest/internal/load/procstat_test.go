package load

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestUsageOfThisProcessIsRead(t *testing.T) {
	before, err := Read(os.Getpid())
	testsupport.NoError(t, err)
	testsupport.True(t, before.RSS >= 1<<20 && before.Files >= 3, "%+v", before)
	// Work until the clock of /proc has moved.
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		now, err := Read(os.Getpid())
		testsupport.NoError(t, err)
		if now.CPU > before.CPU {
			return
		}
	}
	t.Error("30 s of work used no CPU time")
}

func TestTreeHasTheChildren(t *testing.T) {
	testsupport.Needs(t, "util-linux", "taskset")
	cmd := exec.Command("sh", "-c", "sleep 60 & sleep 60")
	testsupport.NoError(t, cmd.Start())
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
	testsupport.NoError(t, err)
	tree, err := ReadTree(cmd.Process.Pid)
	testsupport.NoError(t, err)
	testsupport.True(t, tree.Files > one.Files, "a tree of %d open files, its root has %d", tree.Files, one.Files)
}

func TestProcessThatIsNotThereIsAnError(t *testing.T) {
	if _, err := Read(1 << 30); err == nil {
		t.Error("it was read")
	}
}

func TestBusyShareIsOfTheCoresAskedFor(t *testing.T) {
	before, after := cores{100, 1000}, cores{150, 1100}
	testsupport.Equal(t, after.busySince(before), 0.5, "busy %.2f")
	one, both := readCores([]int{0}), readCores([]int{0, 1})
	testsupport.True(t, one.all > 0 && both.all >= one.all, "core 0 %v, cores 0 and 1 %v", one, both)
}

// A machine may have more cores than the generator has threads.
func TestGeneratorIsSaturatedWhenAllItsThreadsRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	g := gauge{began: time.Now().Add(-time.Second), cpu: processCPU() - 990*time.Millisecond}
	if r := g.result(); r.Busiest <= maxBusy {
		t.Errorf("busy %.2f of the time, want more than %.2f", r.Busiest, maxBusy)
	}
}
