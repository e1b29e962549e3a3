package tenant

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// maxJWT is the longest signed token that is looked at.
	maxJWT = 16 << 10
	// leeway is how far the issuer's clock may be ahead of ours. What has expired has expired.
	leeway = 30 * time.Second
)

// algorithms are those of public keys: a token that is signed with what the verifier knows can be
// made by the verifier, and by whoever takes a public key for a secret.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// errInvalid is in the chain of every error that says of a token that it is not good.
var errInvalid = errors.New("invalid_token")

func invalid(sentence string) *qerr.Error {
	return qerr.Wrap(qerr.Unauthorized, errInvalid, "%s", sentence)
}

// What is wrong with a token. The sentences go into WWW-Authenticate too: no quotes, no names.
var (
	errToken     = invalid("no tenant has this token; it may have been changed")
	errLong      = invalid("the token is longer than 16 KiB")
	errNoJWT     = invalid("no tenant has this token, and it is no JWT that is signed with RS256, PS256, ES256, their longer kin, or EdDSA")
	errNoKid     = invalid("the token does not say which of its issuer's keys it is signed with (kid)")
	errKey       = invalid("the token is signed with a key that its issuer does not have; get a new one")
	errSignature = invalid("the signature of the token is not that of its issuer")
	errClaims    = invalid("the claims of the token cannot be read")
	errIssuer    = invalid("the token is of another issuer")
	errAudience  = invalid("the token is for another audience")
	errNoExpiry  = invalid("the token does not say when it expires (exp)")
	errExpired   = invalid("the token has expired; get a new one")
	errEarly     = invalid("the token is from the future (nbf or iat); the clocks differ")
	errNoValue   = invalid("the token lacks the claim by which tenants are known, or it is neither a text nor a list of texts")
	errNobody    = invalid("the token is good, and of no tenant")
	errSeveral   = invalid("the token is good, and of more than one tenant; it has to be of one")
)

// issuer knows tenants by the tokens that it has signed.
type issuer struct {
	cfg     config.JWT
	tenants map[string]*Tenant // by the value of the claim
	keys    *keyring
	key     [32]byte // of what is remembered
	now     func() time.Time
}

// newIssuer is that of a configuration; prev, where it has the same keys, spares asking for them.
func newIssuer(cfg config.JWT, prev *issuer, log *slog.Logger) (*issuer, error) {
	i := &issuer{cfg: cfg, tenants: map[string]*Tenant{}, now: time.Now}
	_, _ = rand.Read(i.key[:]) // never fails, by its documentation
	var last *keyring
	if prev != nil {
		last = prev.keys
	}
	var err error
	i.keys, err = newKeyring(cfg, last, log)
	return i, err
}

// tenant is whose token it is. The error is a *qerr.Error: Unauthorized, with errInvalid in its
// chain, or Unavailable where the issuer's keys have never been read.
func (i *issuer) tenant(ctx context.Context, word string) (*Tenant, error) {
	if len(word) > maxJWT {
		return nil, errLong
	}
	if strings.Count(word, ".") != 2 {
		return nil, errToken
	}
	set, err := i.keys.current(ctx)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, i.key[:])
	mac.Write([]byte(word))
	sum := [sha256.Size]byte(mac.Sum(nil))
	if t := set.known(sum, i.now()); t != nil {
		return t, nil
	}
	token, err := jwt.ParseSigned(word, algorithms)
	if err != nil || len(token.Headers) != 1 {
		return nil, errNoJWT
	}
	head := token.Headers[0]
	key, err := set.find(head.KeyID)
	if err == errKey { // it may be new
		if set, err = i.keys.again(ctx, set); err == nil {
			key, err = set.find(head.KeyID)
		}
	}
	if err != nil {
		return nil, err
	}
	if !fits(key, jose.SignatureAlgorithm(head.Algorithm)) {
		return nil, errSignature
	}
	t, until, err := i.believe(token, key.Key)
	if err != nil {
		return nil, err
	}
	set.learn(sum, t, until, i.now())
	return t, nil
}

// believe is whose a token is and until when, if the key has signed it.
func (i *issuer) believe(token *jwt.JSONWebToken, key any) (*Tenant, time.Time, error) {
	var std jwt.Claims
	var all map[string]any
	if err := token.Claims(key); err != nil {
		return nil, time.Time{}, errSignature
	}
	if err := token.Claims(key, &std, &all); err != nil {
		return nil, time.Time{}, errClaims
	}
	now := i.now()
	err := std.ValidateWithLeeway(jwt.Expected{Issuer: i.cfg.Issuer, AnyAudience: i.cfg.Audience, Time: now}, leeway)
	switch {
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return nil, time.Time{}, errIssuer
	case errors.Is(err, jwt.ErrInvalidAudience):
		return nil, time.Time{}, errAudience
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return nil, time.Time{}, errEarly
	case std.Expiry == nil:
		return nil, time.Time{}, errNoExpiry
	case errors.Is(err, jwt.ErrExpired), !now.Before(std.Expiry.Time()):
		return nil, time.Time{}, errExpired
	case err != nil:
		return nil, time.Time{}, errClaims
	}
	t, err := i.whose(all)
	return t, std.Expiry.Time(), err
}

// whose is the one tenant that has a value of the claim.
func (i *issuer) whose(claims map[string]any) (found *Tenant, err error) {
	values, ok := texts(lookUp(claims, i.cfg.Claim))
	if !ok {
		return nil, errNoValue
	}
	for _, value := range values {
		switch t := i.tenants[value]; {
		case t == nil || t == found:
		case found != nil:
			return nil, errSeveral
		default:
			found = t
		}
	}
	if found == nil {
		return nil, errNobody
	}
	return found, nil
}

// lookUp is the claim of that name, or where the JSON pointer leads through objects; nil where
// nothing is.
func lookUp(claims map[string]any, name string) any {
	path, pointer := strings.CutPrefix(name, "/")
	if !pointer {
		return claims[name]
	}
	var at any = claims
	for step := range strings.SplitSeq(path, "/") {
		object, _ := at.(map[string]any)
		at = object[unescape.Replace(step)]
	}
	return at
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// texts is a text or a list of texts.
func texts(v any) ([]string, bool) {
	switch v := v.(type) {
	case string:
		return []string{v}, true
	case []any:
		out := make([]string, 0, len(v))
		for _, item := range v {
			text, ok := item.(string)
			if !ok {
				return nil, false
			}
			out = append(out, text)
		}
		return out, true
	}
	return nil, false
}

// fits tells whether the key is one for the algorithm, and for no other than it says.
func fits(key *jose.JSONWebKey, alg jose.SignatureAlgorithm) bool {
	if key.Algorithm != "" && key.Algorithm != string(alg) {
		return false
	}
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		return slices.Contains(algorithms[:6], alg)
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return alg == jose.ES256
		case 384:
			return alg == jose.ES384
		default:
			return alg == jose.ES512
		}
	case ed25519.PublicKey:
		return alg == jose.EdDSA
	}
	return false
}
