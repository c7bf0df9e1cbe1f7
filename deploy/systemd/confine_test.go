//go:build linux

package systemd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"adbuffer/internal/testsupport"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// policyVariable holds a policy, as JSON, in the environment of a process that becomes the service.
const policyVariable = "ADBUFFER_TEST_POLICY"

// serviceID is the user and group of the service in tests that run as root.
const serviceID = 65532

// policy holds the settings of the unit file by which the kernel refuses system calls of the service.
type policy struct {
	Calls         []uint32 // SystemCallFilter=: all that are allowed
	Families      []uint32 // RestrictAddressFamilies=
	NoWriteOrExec bool     // MemoryDenyWriteExecute=
}

var families = map[string]uint32{"AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6, "AF_UNIX": unix.AF_UNIX, "AF_NETLINK": unix.AF_NETLINK}

// policyOf reads the unit file.
func policyOf(t *testing.T) policy {
	t.Helper()
	s := section(t, "adbuffer.service", "Service")
	p := policy{NoWriteOrExec: one(t, s, "MemoryDenyWriteExecute") == "yes"}
	for name := range strings.FieldsSeq(one(t, s, "RestrictAddressFamilies")) {
		family, ok := families[name]
		if !ok {
			t.Fatalf("the test knows no %s", name)
		}
		p.Families = append(p.Families, family)
	}
	numbers := callNumbers(t)
	for i, line := range s["SystemCallFilter"] {
		names, refused := strings.CutPrefix(line, "~")
		if i == 0 && refused {
			t.Fatal("SystemCallFilter= does not begin with what is allowed")
		}
		for name := range strings.FieldsSeq(names) {
			for _, call := range expand(t, name) {
				n, ok := numbers[call]
				if !ok {
					continue // a system call of another architecture
				}
				p.Calls = slices.DeleteFunc(p.Calls, func(c uint32) bool { return c == n })
				if !refused {
					p.Calls = append(p.Calls, n)
				}
			}
		}
	}
	if len(p.Calls) < 200 {
		t.Fatalf("%d system calls are allowed", len(p.Calls))
	}
	return p
}

// expand returns the system calls in a group that systemd defines.
func expand(t *testing.T, name string) (calls []string) {
	t.Helper()
	if !strings.HasPrefix(name, "@") {
		return []string{name}
	}
	out, err := exec.Command(testsupport.Needs(t, "systemd", "systemd-analyze"), "--no-pager", "syscall-filter", name).Output()
	if err != nil {
		t.Fatalf("systemd-analyze syscall-filter %s: %v", name, err)
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != name && line != "" && line[0] != '#' {
			calls = append(calls, expand(t, line)...)
		}
	}
	return calls
}

// callNumbers are the numbers of this architecture's system calls, from x/sys.
func callNumbers(t *testing.T) map[string]uint32 {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+runtime.GOARCH+".go"))
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]uint32{}
	for _, m := range regexp.MustCompile(`SYS_(\w+)\s+= (\d+)`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseUint(m[2], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		numbers[strings.ToLower(m[1])] = uint32(n)
	}
	return numbers
}

// confined returns a command under the policy of the unit file.
func confined(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(policyOf(t))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), policyVariable+"="+string(text))
	return cmd
}

// becomeService confines this process and executes args. Without args it makes the calls that the
// policy forbids. It returns only if it fails.
func becomeService(text string, args []string) error {
	var p policy
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	if err := errors.Join(os.Unsetenv(policyVariable), os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))); err != nil {
		return err
	}
	runtime.LockOSThread() // filters belong to a thread, and exec continues with this one
	if err := dropPrivileges(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	for _, program := range [][]bpf.Instruction{p.familiesFilter(), p.memoryFilter(), p.callsFilter()} {
		if err := install1(program); err != nil {
			return fmt.Errorf("seccomp: %w", err)
		}
	}
	if len(args) == 0 {
		return tryWhatIsRefused()
	}
	return syscall.Exec(args[0], args, os.Environ())
}

// dropPrivileges removes the capabilities of root, also for programs that it executes.
func dropPrivileges() error {
	if os.Geteuid() != 0 {
		return nil // an ordinary user has no capability
	}
	for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_READ, c, 0, 0, 0) == nil; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	return errors.Join(syscall.Setgroups(nil), syscall.Setresgid(serviceID, serviceID, serviceID), syscall.Setresuid(serviceID, serviceID, serviceID))
}

const (
	offsetCall = 0  // in struct seccomp_data
	offsetArgs = 16 // eight bytes each; the filters compare the lower four, which come first in little endian

	retAllow = 0x7fff0000
	retErrno = 0x00050000
	retKill  = 0x80000000 // the whole process, with SIGSYS
)

func refuse(err syscall.Errno) bpf.RetConstant { return bpf.RetConstant{Val: retErrno | uint32(err)} }

// familiesFilter is the filter that systemd makes of RestrictAddressFamilies=.
func (p policy) familiesFilter() []bpf.Instruction {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetCall, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SOCKET, SkipTrue: 1},
		bpf.RetConstant{Val: retAllow},
		bpf.LoadAbsolute{Off: offsetArgs, Size: 4},
	}
	for _, family := range p.Families {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: family, SkipFalse: 1}, bpf.RetConstant{Val: retAllow})
	}
	return append(program, refuse(syscall.EAFNOSUPPORT))
}

// memoryFilter is the filter that systemd makes of MemoryDenyWriteExecute=.
func (p policy) memoryFilter() []bpf.Instruction {
	if !p.NoWriteOrExec {
		return []bpf.Instruction{bpf.RetConstant{Val: retAllow}}
	}
	const third = offsetArgs + 2*8
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetCall, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_MMAP, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_MPROTECT, SkipTrue: 6},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_PKEY_MPROTECT, SkipTrue: 5},
		bpf.RetConstant{Val: retAllow},
		// mmap: writable and executable at once.
		bpf.LoadAbsolute{Off: third, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: unix.PROT_WRITE | unix.PROT_EXEC},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PROT_WRITE | unix.PROT_EXEC, SkipTrue: 4},
		bpf.RetConstant{Val: retAllow},
		// mprotect: executable afterwards.
		bpf.LoadAbsolute{Off: third, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.PROT_EXEC, SkipTrue: 1},
		bpf.RetConstant{Val: retAllow},
		refuse(syscall.EPERM),
	}
}

// callsFilter is the filter that systemd makes of SystemCallFilter=, but it kills the process. With
// an error number instead, the service might continue without the result of the call.
func (p policy) callsFilter() []bpf.Instruction {
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: offsetCall, Size: 4}}
	for _, call := range p.Calls {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: call, SkipFalse: 1}, bpf.RetConstant{Val: retAllow})
	}
	return append(program, bpf.RetConstant{Val: retKill})
}

// install1 adds a filter to this thread's filters. Each of them must allow a call.
func install1(program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	list := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&list)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return errno
	}
	return nil
}

// tryWhatIsRefused ends by SIGSYS if the policy refuses every call that it must refuse.
func tryWhatIsRefused() error {
	if _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0); err != syscall.EAFNOSUPPORT {
		return fmt.Errorf("socket of AF_NETLINK: %v", err)
	}
	if _, err := unix.Mmap(-1, 0, 4096, unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE); err != syscall.EPERM {
		return fmt.Errorf("mmap to write and execute: %v", err)
	}
	memory, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("mmap to write: %v", err)
	}
	if err := unix.Mprotect(memory, unix.PROT_READ|unix.PROT_EXEC); err != syscall.EPERM {
		return fmt.Errorf("mprotect to execute: %v", err)
	}
	return fmt.Errorf("chroot: %v", unix.Chroot("/")) // of @privileged
}
