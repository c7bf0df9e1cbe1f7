package configfile

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

// watching is a Watcher of one file in a synctest bubble, and the content that it last saw.
type watching struct {
	Watcher
	t    *testing.T
	file atomic.Pointer[string]
	last atomic.Pointer[Content]
}

func watch(t *testing.T, file string) *watching {
	t.Helper()
	w := &watching{t: t}
	w.file.Store(&file)
	w.last.Store(new(Content))
	w.Watch([]string{file})
	go w.Run(t.Context(), func() { w.last.Store(new(Look([]string{*w.file.Load()}))) })
	time.Sleep(3*WatchEvery + WatchEvery/2)
	synctest.Wait()
	return w
}

// wantSeen lets a time pass, and then the watcher must have seen the content, which must differ from
// the last one seen.
func (w *watching) wantSeen(what string, within time.Duration) {
	w.t.Helper()
	now := Look([]string{*w.file.Load()})
	testsupport.MustTrue(w.t, !maps.Equal(*w.last.Load(), now), "%s: the content is still %v", what, now)
	time.Sleep(within)
	if synctest.Wait(); !maps.Equal(*w.last.Load(), now) {
		w.t.Errorf("%s: not seen within %v", what, within)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	testsupport.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	testsupport.NoError(t, os.Rename(from, to))
}

// link makes a symbolic link, and replaces an existing one, as a kubelet does.
func link(t *testing.T, target, name string) {
	t.Helper()
	testsupport.NoError(t, os.Symlink(target, name+".new"))
	rename(t, name+".new", name)
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	testsupport.NoError(t, os.MkdirAll(dir, 0o700))
	return dir
}

func TestEveryWayToChangeAFileIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := mkdir(t, filepath.Join(t.TempDir(), "conf"))
		file := filepath.Join(dir, "adbuffer.yaml")
		w := watch(t, file)
		write(t, file, "1")
		w.wantSeen("the file appears", 2*WatchEvery)
		write(t, file, "2")
		w.wantSeen("it is written anew", 2*WatchEvery)
		write(t, file+".tmp", "3")
		rename(t, file+".tmp", file)
		w.wantSeen("another file is renamed over it", 2*WatchEvery)
		rename(t, file, file+"~")
		write(t, file, "4")
		w.wantSeen("it is moved away, and a new one written, as vim does", 2*WatchEvery)
		testsupport.NoError(t, os.Remove(file))
		w.wantSeen("it is removed", 2*WatchEvery)
		write(t, file, "5")
		w.wantSeen("it is back", 2*WatchEvery)
		rename(t, dir, dir+".old")
		w.wantSeen("its directory is moved away", 2*WatchEvery)
		write(t, filepath.Join(mkdir(t, dir), "adbuffer.yaml"), "6")
		w.wantSeen("there is another directory", 2*WatchEvery)
		write(t, file, "7")
		w.wantSeen("the file in it is written anew", 2*WatchEvery)
		testsupport.NoError(t, os.RemoveAll(dir))
		w.wantSeen("the directory is removed", 2*WatchEvery)
		write(t, filepath.Join(mkdir(t, dir), "adbuffer.yaml"), "8")
		w.wantSeen("it is made again", 2*WatchEvery)
	})
}

func TestDirectoriesBehindSymbolicLinksAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		one, two := mkdir(t, filepath.Join(root, "releases/1")), mkdir(t, filepath.Join(root, "releases/2"))
		write(t, filepath.Join(one, "adbuffer.yaml"), "1")
		write(t, filepath.Join(two, "adbuffer.yaml"), "2")
		link(t, one, filepath.Join(root, "current"))
		etc := mkdir(t, filepath.Join(root, "etc"))
		link(t, "../current/adbuffer.yaml", filepath.Join(etc, "adbuffer.yaml"))
		w := watch(t, filepath.Join(etc, "adbuffer.yaml"))
		write(t, filepath.Join(one, "adbuffer.yaml"), "1, edited")
		w.wantSeen("the file at the end of the links is written", 2*WatchEvery)
		link(t, two, filepath.Join(root, "current"))
		w.wantSeen("a link in the middle of the path leads elsewhere", 2*WatchEvery)
		write(t, filepath.Join(two, "adbuffer.yaml"), "2, edited")
		w.wantSeen("the file at the new end is written", 2*WatchEvery)
		link(t, filepath.Join(one, "adbuffer.yaml"), filepath.Join(etc, "adbuffer.yaml"))
		w.wantSeen("the first link leads elsewhere", 2*WatchEvery)
	})
}

func TestOtherFilesMayBeWatchedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
		write(t, a, "1")
		write(t, b, "1")
		w := watch(t, a)
		w.Watch([]string{b})
		w.file.Store(new(b))
		write(t, b, "2")
		w.wantSeen("the file that is watched now is written", 2*WatchEvery)
	})
}

// Writes to mapped memory need not change the record of a file.
func TestAChangeThatNoRecordShowsIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "adbuffer.yaml")
		write(t, name, "before")
		w := watch(t, name)
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		testsupport.NoError(t, err)
		defer file.Close()
		mapped, err := syscall.Mmap(int(file.Fd()), 0, 6, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		testsupport.NoError(t, err)
		copy(mapped, "after!")
		defer syscall.Munmap(mapped)
		w.wantSeen("memory that is mapped to the file is written", 10*time.Second)
	})
}

func TestAFileThatChangesWithoutEndIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "adbuffer.yaml")
		w := watch(t, file)
		for i := range 2*readEvery + 1 {
			write(t, file, strings.Repeat("x", i+1))
			time.Sleep(WatchEvery)
		}
		if synctest.Wait(); strings.Contains((*w.last.Load())[file], "no such file") {
			t.Error("it was never read")
		}
	})
}

func TestAnUnreadableFileIsAStateToo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	testsupport.NoError(t, syscall.Mkfifo(pipe, 0o600))
	missing := filepath.Join(dir, "missing")
	before := Look([]string{pipe, missing, dir})
	if !strings.Contains(before[pipe], "regular file") || !strings.Contains(before[dir], "regular file") || !strings.Contains(before[missing], "no such file") {
		t.Error(before)
	}
	write(t, missing, "")
	testsupport.True(t, !maps.Equal(before, Look([]string{pipe, missing, dir})), "a file that appears, empty, changes nothing")
}

// A process that cannot open any more files must not report a failed reload of an unchanged file.
func TestAFileThatCannotBeOpenedForLackOfDescriptorsHasNotChanged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "x")
	before := Look([]string{file})
	var limit syscall.Rlimit
	testsupport.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	testsupport.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	_, openErr := os.Open(file)
	now, changed := before.Update()
	testsupport.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	testsupport.MustTrue(t, errors.Is(openErr, syscall.EMFILE), "the file could be opened: %v", openErr)
	testsupport.True(t, !changed && maps.Equal(now, before), "changed is %v: %v, before %v", changed, now, before)
	write(t, file, "y")
	if _, changed := now.Update(); !changed {
		t.Error("a change was not seen")
	}
}
