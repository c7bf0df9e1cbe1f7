package header

import (
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestMaskedFieldsKeepTheirLengths(t *testing.T) {
	var f RequestFields
	testsupport.NoError(t, f.Scan([]byte("Host: ads.example\r\nUser-Agent:  a b\r\nCookie: uid=1234\r\nAuthorization: Bearer t\r\nX-Api-Key: abc\r\n"+
		"X-Forwarded-For: 203.0.113.9\r\nForwarded: for=203.0.113.9\r\nX-Device-IP: 203.0.113.9\r\nX-Real-IP: 203.0.113.9\r\n"+
		"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\nProxy-Authorization: Basic\r\nEmpty-Key:\r\n\r\n")))
	want := "Host: ads.example\r\nUser-Agent: a b\r\nCookie: xxxxxxxx\r\nAuthorization: xxxxxxxx\r\nX-Api-Key: xxx\r\n" +
		"X-Forwarded-For: xxxxxxxxxxx\r\nForwarded: xxxxxxxxxxxxxxx\r\nX-Device-IP: xxxxxxxxxxx\r\nX-Real-IP: xxxxxxxxxxx\r\n" +
		"Content-Encoding: gzip\r\nProxy-Authorization: xxxxx\r\nEmpty-Key: \r\n\r\n"
	got := f.AppendMasked(nil)
	testsupport.Equal(t, string(got), want, "the masked fields are %q")
	testsupport.NoError(t, new(RequestFields).Scan(got))
	for _, name := range []string{"cookie", "AUTHORIZATION", "X-Api-Key", "X_Forwarded_For", "X-Device-IP"} {
		testsupport.True(t, IsMasked(name), "%s is not masked", name)
	}
	testsupport.True(t, !IsMasked("Host") && !IsMasked("User-Agent"), "Host or User-Agent is masked")
}

func TestNamesThatSuggestASecret(t *testing.T) {
	for _, name := range []string{
		"Authorization", "X-Auth", "oauth2", "authToken", "WWW-Authenticate", "Cookie", "key", "API_KEY", "apikey", "s3Keys", "x.key.id", "APIKey",
		"token", "x-accesstoken", "clientSecret", "pass", "userPass", "password1", "sig", "x_sig", "urlSig", "sign", "X-Amz-Signature", "credentials", "sessionid",
	} {
		testsupport.True(t, NamesSecret(name), "%s names no secret", name)
	}
	for _, name := range []string{"keywords", "site.keywords", "author", "design", "passback", "signal", "User-Agent", "assign", ""} {
		testsupport.True(t, !NamesSecret(name), "%s names a secret", name)
	}
}

func TestMaskedTarget(t *testing.T) {
	for _, row := range [][2]string{
		{"/a", "/a"},
		{"/a?", "/a?"},
		{"/a?b=1&key=abc&api_key=&key&c", "/a?b=1&key=xxx&api_key=&key&c"},
		{"/a?KEY=a=b?c", "/a?KEY=xxxxx"},
		{"*", "*"},
	} {
		testsupport.Equal(t, string(AppendMaskedTarget(nil, []byte(row[0]))), row[1], "the target is %q")
	}
}
