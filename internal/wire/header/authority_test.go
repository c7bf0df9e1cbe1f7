package header

import (
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestHostHasNeitherPortNorFinalDot(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "ads.example.com": "ads.example.com", "ads.example.com.": "ads.example.com", "Ads.example.com.:8080": "Ads.example.com",
		"a:": "a", "a:0": "a", "a:065535": "a", "[::1]": "[::1]", "[::1]:80": "[::1]", "[::FFFF:1.2.3.4]": "[::FFFF:1.2.3.4]", "a_b-c": "a_b-c", "a%2eb": "a%2eb", "1.2.3.4": "1.2.3.4",
	} {
		var f RequestFields
		testsupport.NoError(t, f.Scan([]byte("Host: "+value+"\r\n\r\n")))
		testsupport.Equal(t, string(f.Host()), want, "Host %[2]q: %[1]q", value)
		if value == "" {
			continue
		}
		testsupport.NoError(t, f.Scan([]byte("Host: other\r\n\r\n")))
		testsupport.Equal(t, f.SetTarget([]byte("http://"+value+"/a")), "", "http://%[2]s/a: %[1]s", value)
		testsupport.Equal(t, string(f.Host()), want, "http://%[2]s/a: %[1]q", value)
	}
}

func TestAuthoritiesThatAreTheSame(t *testing.T) {
	for _, row := range []struct {
		scheme, a, b string
		want         bool
	}{
		{"https", "a.example", "A.Example", true},
		{"https", "a.example", "a.example:443", true},
		{"HTTPS", "a.example", "a.example:443", true},
		{"https", "a.example", "a.example:80", false},
		{"http", "a.example", "a.example:80", true},
		{"http", "a.example", "a.example:", true},
		{"http", "a.example", "a.example.", true},
		{"http", "a.example.:80", "a.EXAMPLE", true},
		{"http", "a.example:8080", "a.example:08080", true},
		{"http", "a.example:8080", "a.example", false},
		{"http", "a.example", "b.example", false},
		{"http", "[::1]:80", "[::1]", true},
		{"http", "", "", false},
		{"http", "a:asd", "a:asd", false},
	} {
		got := SameAuthority([]byte(row.a), []byte(row.b), []byte(row.scheme))
		testsupport.Equal(t, got, row.want, "%[2]s, %[3]q and %[4]q: %[1]v", row.scheme, row.a, row.b)
	}
}
