package lag

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// Goroutines that wait for sockets are in the kernel's list of ready sockets, of which Go takes 128 at a time. A
// pass waits for all of these goroutines; a goroutine that yields does not.
func TestAPassStandsBehindAllReadySockets(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	q := NewQueue()
	defer q.Close()
	const n = 500
	var waiting, ran atomic.Int64
	var writers []*os.File
	for range n {
		r, w, err := os.Pipe()
		testsupport.NoError(t, err)
		writers = append(writers, w)
		go func() {
			waiting.Add(1)
			r.Read(make([]byte, 1))
			ran.Add(1)
			r.Close()
		}()
	}
	testsupport.Eventually(t, "all goroutines wait", func() bool { return waiting.Load() == n })
	time.Sleep(10 * time.Millisecond) // the last one begins its Read
	for _, w := range writers {
		w.Write([]byte{1})
		w.Close()
	}
	q.Pass()
	if got := ran.Load(); got < n/2 { // 0 with a yield
		t.Errorf("%d of %d goroutines ran before the pass ended", got, n)
	}
	q.Close()
	q.Pass()
	new(Queue).Pass()
}

// A meter that begins again while its last goroutine waits has two of them for a moment.
func TestPassesThatOverlapWaitForEachOther(t *testing.T) {
	q := NewQueue()
	defer q.Close()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				q.Pass()
			}
		})
	}
	all.Wait()
}
