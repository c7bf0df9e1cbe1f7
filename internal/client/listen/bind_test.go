package listen

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/test/testsupport"

	"go.uber.org/zap"
)

// wantRefused opens at o. That must fail with an error that contains all the words.
func wantRefused(t *testing.T, traffic, admin Options, words ...string) {
	t.Helper()
	s, err := Open(traffic, admin, zap.NewNop())
	if err == nil {
		s.Close()
		t.Errorf("%s %s can be listened on", traffic.Network, traffic.Address)
		return
	}
	for _, w := range words {
		testsupport.True(t, strings.Contains(err.Error(), w), "%v\ndoes not contain %q", err, w)
	}
}

func TestTheErrorForAnAddressNamesItAndTheReason(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	at := taken.Addr().String()
	free := adminAt("127.0.0.1:0")
	wantRefused(t, trafficAt("tcp", at), free, `server.listen "`+at+`"`, "address already in use", "server.reuse_port")
	shared := trafficAt("tcp", at)
	shared.ReusePort = true
	wantRefused(t, shared, free, `server.listen "`+at+`"`, "without server.reuse_port, or of another user")
	wantRefused(t, trafficAt("tcp", "127.0.0.1:0"), adminAt(at), `admin.listen "`+at+`"`, "another process listens there")
	wantRefused(t, trafficAt("tcp", "192.0.2.77:8080"), free, `server.listen "192.0.2.77:8080"`, "no interface of this machine has the address")
}

func TestTheErrorForAUnixPathNamesItAndTheReason(t *testing.T) {
	dir, free := t.TempDir(), adminAt("127.0.0.1:0")
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("precious"), 0o600))
	wantRefused(t, trafficAt("unix", file), free, `server.listen "`+file+`"`, "the path is a file that is not a socket")
	b, _ := os.ReadFile(file)
	testsupport.True(t, string(b) == "precious", "the file in the way was changed")
	wantRefused(t, trafficAt("unix", dir+"/none/ad.sock"), free, "the folder "+dir+"/none does not exist")
	wantRefused(t, trafficAt("unix", file+"/ad.sock"), free, file+" is not a folder")
	long := filepath.Join(dir, strings.Repeat("x", 106-len(dir)-2))
	must(t, os.Mkdir(long, 0o700))
	wantRefused(t, trafficAt("unix", long+"/a"), free, "bytes too long for the temporary path")
	served := openAt(t, trafficAt("unix", dir+"/ad.sock"))
	wantRefused(t, trafficAt("unix", dir+"/ad.sock"), free, "another process serves this socket", "server.reuse_port")
	served.CloseTraffic()
	entries, err := os.ReadDir(dir)
	must(t, err)
	testsupport.True(t, len(entries) == 2, "left behind: %v", entries)
}

func TestAUnixSocketHasItsModeAndIsRemovedWithItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ad.sock")
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for _, mode := range []os.FileMode{0o600, 0o620, 0o666} {
		o := trafficAt("unix", path)
		o.Mode = mode
		s := openAt(t, o)
		info, err := os.Stat(path)
		must(t, err)
		testsupport.True(t, info.Mode().Perm() == mode && s.Traffic.Addr().String() == path, "%v at %v, want %v at %s", info.Mode(), s.Traffic.Addr(), mode, path)
		testsupport.MustEqual(t, syscall.Umask(0o077), 0o077, "the umask is %o after the bind, want the process's own, 077")
		s.CloseTraffic()
		_, err = os.Lstat(path)
		testsupport.True(t, os.IsNotExist(err), "the socket is still there: %v", err)
	}
}

func TestAUnixSocketLeftBehindIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ad.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	dead.SetUnlinkOnClose(false)
	must(t, dead.Close())
	s := openAt(t, trafficAt("unix", path))
	dial(t, s.Traffic.Addr())
	wantAccepted(t, s.Traffic, 1)
}

// A process that does not hand over (for example an older release) loses its path. It loses no
// connection from its queue, and does not remove the new file.
func TestAUnixSocketThatIsServedIsReplacedInOneStep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ad.sock")
	old := openAt(t, trafficAt("unix", path))
	dial(t, old.Traffic.Addr())
	o := trafficAt("unix", path)
	o.ReusePort = true
	next := openAt(t, o)
	dial(t, next.Traffic.Addr())
	dial(t, next.Traffic.Addr())
	old.CloseTraffic()
	wantAccepted(t, old.Traffic, 2) // one of them is the dial that checks whether a process serves the socket
	wantClosed(t, old.Traffic)
	wantAccepted(t, next.Traffic, 2)
	dial(t, next.Traffic.Addr())
	wantAccepted(t, next.Traffic, 1)
	next.CloseTraffic()
	_, err := os.Lstat(path)
	testsupport.True(t, os.IsNotExist(err), "the last process left its socket behind: %v", err)
}
