package adminview

import (
	"bytes"
	"context"
	"errors"
	"runtime/trace"
	"testing"
	"time"

	"adbuffer/internal/admin"
	"adbuffer/internal/testsupport"
)

// snapshot returns the trace of a snapshot that waits no longer than during.
func snapshot(t *testing.T, f *FlightRecorder, during func()) []byte {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		during()
		cancel()
	}()
	b, err := f.Snapshot(ctx)
	testsupport.NoError(t, err)
	return b
}

// awaitSnapping waits until a snapshot has started the recorder.
func awaitSnapping(f *FlightRecorder) {
	for {
		f.mu.Lock()
		snapping := f.snapping
		f.mu.Unlock()
		if snapping {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestTheFlightRecorderHasTheSecondsBefore(t *testing.T) {
	var f FlightRecorder
	mark := func(s string) { trace.Log(t.Context(), "test", s) }

	mark("mark-one")
	b := snapshot(t, &f, func() { awaitSnapping(&f); mark("mark-two") })
	if bytes.Contains(b, []byte("mark-one")) || !bytes.Contains(b, []byte("mark-two")) {
		t.Errorf("a recorder that did not run must have the time of the wait alone; %d bytes", len(b))
	}
	testsupport.True(t, !trace.IsEnabled(), "the recorder runs, but age is 0")

	testsupport.NoError(t, f.Keep(10*time.Second))
	mark("mark-three")
	for range 2 { // the capture continues
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		b, err := f.Snapshot(ctx) // waits for nothing
		cancel()
		if err != nil || !bytes.Contains(b, []byte("mark-three")) {
			t.Errorf("the trace lacks the time before the snapshot: %v, %d bytes", err, len(b))
		}
	}
	if err := f.Keep(0); err != nil || trace.IsEnabled() {
		t.Errorf("the recorder runs, but it was stopped: %v", err)
	}
}

func TestASnapshotThatWaitsExcludesOtherSnapshotsAndKeepsLaterSettings(t *testing.T) {
	var f FlightRecorder
	snapshot(t, &f, func() {
		awaitSnapping(&f)
		if _, err := f.Snapshot(t.Context()); !errors.Is(err, admin.ErrTraceBusy) {
			t.Errorf("a second snapshot: %v", err)
		}
		if err := f.Keep(time.Second); err != nil {
			t.Error(err)
		}
	})
	testsupport.True(t, trace.IsEnabled(), "the recorder does not run after the snapshot")
	if err := f.Keep(0); err != nil || trace.IsEnabled() {
		t.Errorf("the recorder runs, but it was stopped: %v", err)
	}
}
