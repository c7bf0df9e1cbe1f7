package adminview

import (
	"bytes"
	"context"
	"runtime/trace"
	"sync"
	"time"

	"adbuffer/internal/admin"
)

// flightBytes is how much memory Go's flight recorder may use. Go takes it as a hint.
const flightBytes = 16 << 20

// FlightRecorder keeps the execution trace of the last seconds in memory. Go allows one for each
// process.
type FlightRecorder struct {
	mu       sync.Mutex            // guards the fields below
	age      time.Duration         // the age that Keep was given
	running  *trace.FlightRecorder // nil for none
	snapping bool                  // Snapshot has started it, and waits
}

// Keep makes the recorder keep at least the last age. 0 stops it.
func (f *FlightRecorder) Keep(age time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if age == f.age {
		return nil
	}
	f.age = age
	if f.snapping {
		return nil // Snapshot starts the recorder
	}
	return f.restartLocked(age)
}

// Snapshot returns the trace of the last seconds. If the recorder does not run, Snapshot runs it
// until ctx ends.
func (f *FlightRecorder) Snapshot(ctx context.Context) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.snapping {
		return nil, admin.ErrTraceBusy
	}
	if f.running != nil {
		return f.writeLocked()
	}
	if err := f.restartLocked(time.Minute); err != nil { // longer than any wait
		return nil, err
	}
	f.snapping = true
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.snapping = false
	b, err := f.writeLocked()
	if again := f.restartLocked(f.age); err == nil {
		err = again
	}
	return b, err
}

// writeLocked writes to memory, so the lock is not held while an operator reads the trace.
func (f *FlightRecorder) writeLocked() ([]byte, error) {
	var b bytes.Buffer
	_, err := f.running.WriteTo(&b)
	return b.Bytes(), err
}

// restartLocked stops the recorder, and starts it for age, if that is not 0.
func (f *FlightRecorder) restartLocked(age time.Duration) error {
	if f.running != nil {
		f.running.Stop()
		f.running = nil
	}
	if age == 0 {
		return nil
	}
	r := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: age, MaxBytes: flightBytes})
	if err := r.Start(); err != nil {
		return err
	}
	f.running = r
	return nil
}
