package testsupport

import (
	"net"
	"strconv"
	"testing"
)

func TestFreeAddrIsBelowThePortsThatLinuxChooses(t *testing.T) {
	for range 100 {
		port, err := strconv.Atoi(Port(t, FreeAddr(t)))
		if err != nil || port < firstPort || port >= endPort {
			t.Fatalf("port %d (%v), want one from %d to below %d", port, err, firstPort, endPort)
		}
	}
}

func TestFreeAddrIsReservedUntilTheTestEnds(t *testing.T) {
	var addr string
	t.Run("reserved", func(t *testing.T) {
		addr = FreeAddr(t)
		port, err := strconv.Atoi(Port(t, addr))
		if err != nil {
			t.Fatal(err)
		}
		if l, err := net.Listen("unix", reservation(port)); err == nil {
			l.Close()
			t.Errorf("port %d is not reserved", port)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	})
	port, err := strconv.Atoi(Port(t, addr))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", reservation(port))
	if err != nil {
		t.Fatalf("port %d is still reserved: %v", port, err)
	}
	l.Close()
}
