package config

import "fmt"

// Machine holds the resources that the process may use, as they were when the configuration was read.
type Machine struct {
	OpenFiles  int    // files that the process may have open (ulimit -n); 0 = unknown or no limit
	Memory     int    // bytes that the process may use; 0 = unknown
	MemoryFrom string // a clause that says what limits Memory
}

// Limit is a limit in force: the value of a setting, or less if the machine does not allow that much.
type Limit struct {
	Value   int
	setting string // the path of the setting
	asked   int    // the value of the setting
	why     string // why Value is lower than asked; "" = both are equal
}

// From returns the path of the setting. If the machine lowers the limit, From also says why.
func (l Limit) From() string {
	if l.why == "" {
		return l.setting
	}
	return fmt.Sprintf("%s, lowered from %d: %s", l.setting, l.asked, l.why)
}

// Lowered says that the machine lowers the limit, and why. It returns "" if the machine does not.
func (l Limit) Lowered() string {
	if l.why == "" {
		return ""
	}
	return fmt.Sprintf("%s is %d, lowered from %d: %s", l.setting, l.Value, l.asked, l.why)
}

const (
	maxSpareFiles = 128
	// Bodies may hold one part in memoryDivisor of the memory: the buffer of a body may be twice as large
	// as the body, and garbage may take as much again.
	memoryDivisor = 4
	// minBufferedBytes is the limit of a machine with very little memory.
	minBufferedBytes = 1 << 20
)

// MaxConnections returns the limit in force on client connections.
func (c *Config) MaxConnections() Limit { return c.Machine.maxConnections(c) }

// MaxBufferedBytes returns the limit in force on the bytes of bodies.
func (c *Config) MaxBufferedBytes() Limit { return c.Machine.maxBufferedBytes(c) }

// BufferedBytesLimit returns how many bytes of the SSP's requests and responses may be held at once: the
// SSP's max_buffered_bytes or, if that is 0, a quarter of serverLimit.
func (s *SSP) BufferedBytesLimit(serverLimit int) int {
	if s.MaxBufferedBytes > 0 {
		return s.MaxBufferedBytes
	}
	return max(1, serverLimit/4)
}

func (m *Machine) maxConnections(c *Config) Limit {
	l := Limit{Value: c.Server.MaxConnections, setting: "server.max_connections", asked: c.Server.MaxConnections}
	if m.OpenFiles > 0 {
		free := m.OpenFiles - m.spareFiles()
		// Clients get at least half of the free files, whatever pool.max_conns says.
		l.lowerTo(max(1, free/2, free-c.upstreamConns()), fmt.Sprintf("the process may open %d files (ulimit -n)", m.OpenFiles))
	}
	return l
}

func (m *Machine) maxBufferedBytes(c *Config) Limit {
	l := Limit{Value: c.Server.MaxBufferedBytes, setting: "server.max_buffered_bytes", asked: c.Server.MaxBufferedBytes}
	if m.Memory > 0 {
		l.lowerTo(max(minBufferedBytes, m.Memory/memoryDivisor), fmt.Sprintf("a quarter of the %d bytes of memory %s", m.Memory, m.MemoryFrom))
	}
	return l
}

func (l *Limit) lowerTo(limit int, why string) {
	if l.Value > limit {
		l.Value, l.why = limit, why
	}
}

// spareFiles returns how many open files are reserved for everything but connections of clients and
// SSPs: listeners, logs, epoll, certificates being read, and clients of the admin listener.
func (m *Machine) spareFiles() int { return min(maxSpareFiles, m.OpenFiles/2) }

// upstreamConns returns how many connections to SSPs may be open at once.
func (c *Config) upstreamConns() (n int) {
	for i := range c.SSPs {
		n += c.SSPs[i].Pool.MaxConns
		if c.SSPs[i].HealthCheck.Path != "" {
			n += len(c.SSPs[i].Endpoints)
		}
	}
	return n
}

// inForce warns of each limit that the configuration sets and the machine lowers. It does not warn of a
// default that a small machine lowers, which is no mistake. The limits in force are logged at start.
func (w *warner) inForce(cfg *Config) {
	m := &w.machine.Machine
	if l := m.maxConnections(cfg); l.why != "" && w.isSet(l.setting) {
		w.add(l.setting, "%d are in force on this machine, not %d: %s, which must also be enough for up to %d connections to SSPs (the sum of pool.max_conns, and one for each endpoint with a health_check) and %d other files; raise ulimit -n, or lower server.max_connections or pool.max_conns",
			l.Value, l.asked, l.why, cfg.upstreamConns(), m.spareFiles())
	}
	if l := m.maxBufferedBytes(cfg); l.why != "" && w.isSet(l.setting) {
		w.add(l.setting, "%d bytes are in force on this machine, not %d: %s; give it more memory or lower this",
			l.Value, l.asked, l.why)
	}
}
