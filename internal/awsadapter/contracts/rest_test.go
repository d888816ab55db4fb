package contracts

import (
	"encoding/base64"
	"net/url"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/control/secrets/secretstest"
	"github.com/tranship-io/tranship/internal/awsadapter/dblogin"
	"github.com/tranship-io/tranship/internal/awsadapter/kmskeys"
	"github.com/tranship-io/tranship/internal/awsadapter/parameter"
	"github.com/tranship-io/tranship/internal/awsadapter/secretstore"
	"github.com/tranship-io/tranship/internal/awsadapter/sweepswitch"
	"github.com/tranship-io/tranship/localstack/rig"
)

func TestSwitch(t *testing.T) {
	t.Parallel()
	c := rig.Shared(t).AWS()
	client, name := scheduler.NewFromConfig(c), rig.Name(t)
	_, err := client.CreateScheduleGroup(t.Context(), &scheduler.CreateScheduleGroupInput{Name: &name})
	require.NoError(t, err)
	s := sweepswitch.New(c, name, name)
	require.ErrorContains(t, s.On(t.Context()), "read schedule "+name+"/"+name)
	target := types.Target{Arn: aws.String("arn:aws:lambda:us-east-1:000000000000:function:sweep"), RoleArn: aws.String("arn:aws:iam::000000000000:role/r"), Input: aws.String(`{"sweep":true}`)}
	_, err = client.CreateSchedule(t.Context(), &scheduler.CreateScheduleInput{
		GroupName: &name, Name: &name, ScheduleExpression: aws.String("rate(1 minute)"), State: types.ScheduleStateDisabled,
		FlexibleTimeWindow: &types.FlexibleTimeWindow{Mode: types.FlexibleTimeWindowModeOff}, Target: &target,
	})
	require.NoError(t, err)
	for _, step := range []struct {
		do   bool
		want types.ScheduleState
	}{{true, types.ScheduleStateEnabled}, {true, types.ScheduleStateEnabled}, {false, types.ScheduleStateDisabled}, {false, types.ScheduleStateDisabled}, {true, types.ScheduleStateEnabled}} {
		if step.do {
			require.NoError(t, s.On(t.Context()))
		} else {
			require.NoError(t, s.Off(t.Context()))
		}
		is, err := client.GetSchedule(t.Context(), &scheduler.GetScheduleInput{GroupName: &name, Name: &name})
		require.NoError(t, err)
		require.Equal(t, step.want, is.State)
		require.Equal(t, "rate(1 minute)", aws.ToString(is.ScheduleExpression))
		require.Equal(t, aws.ToString(target.Input), aws.ToString(is.Target.Input))
		require.Equal(t, aws.ToString(target.Arn), aws.ToString(is.Target.Arn))
	}
}

func TestKeyring(t *testing.T) {
	t.Parallel()
	c := rig.Shared(t).AWS()
	made, err := kms.NewFromConfig(c).CreateKey(t.Context(), &kms.CreateKeyInput{})
	require.NoError(t, err)
	secretstest.TestKeyring(t, kmskeys.New(c, aws.ToString(made.KeyMetadata.Arn)))
	_, err = secrets.Seal(t.Context(), kmskeys.New(c, "arn:aws:kms:us-east-1:000000000000:key/"+uuid.NewString()), uuid.New(), "a", "x")
	require.ErrorContains(t, err, "Encrypt")
}

func TestProvider(t *testing.T) {
	t.Parallel()
	c := rig.Shared(t).AWS()
	client, prefix, org := secretsmanager.NewFromConfig(c), rig.Name(t), uuid.New()
	text := `{"password":"hunter2","port":5432}`
	id := prefix + "/" + org.String() + "/shop"
	_, err := client.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: &id, SecretString: &text})
	require.NoError(t, err)
	p := secretstore.New(c, prefix)
	for ref, value := range map[secrets.Ref]string{"secretsmanager:shop#password": "hunter2", "secretsmanager:shop": text, "secretsmanager:shop#port": "5432"} {
		for _, missing := range []secrets.Ref{"secretsmanager:other", "secretsmanager:shop#user", "secretsmanager:../" + secrets.Ref(org.String()) + "/shop"} {
			secretstest.TestProvider(t, secretstest.Provider{Provider: p, Organization: org, Ref: ref, Missing: missing, Value: value})
		}
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	s, name := parameter.New(rig.Shared(t).AWS()), "/"+rig.Name(t)+"/signing"
	_, err := s.Get(t.Context(), name)
	require.ErrorIs(t, err, parameter.ErrMissing)
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	made, err := s.Make(t.Context(), name, key, "signs API keys")
	require.NoError(t, err)
	require.True(t, made)
	made, err = s.Make(t.Context(), name, "other", "")
	require.NoError(t, err)
	require.False(t, made)
	keys, err := s.Keys(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, [][]byte{make([]byte, 32)}, keys)
	require.NoError(t, s.Put(t.Context(), name, key+"\nhunter2!", ""))
	_, err = s.Keys(t.Context(), name)
	require.ErrorContains(t, err, "line 2")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestLoginBySecret(t *testing.T) {
	t.Parallel()
	c := rig.Shared(t).AWS()
	client, name := secretsmanager.NewFromConfig(c), rig.Name(t)
	made, err := client.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: &name, SecretString: aws.String(`{"username":"u","password":"first","host":"db","port":5433,"dbname":"d"}`)})
	require.NoError(t, err)
	l := dblogin.NewSecret(c, aws.ToString(made.ARN))
	u, err := url.Parse("postgres://x@elsewhere/other?sslmode=verify-full")
	require.NoError(t, err)
	require.NoError(t, l.Place(t.Context(), u))
	require.Equal(t, "postgres://x@db:5433/d?sslmode=verify-full", u.String())
	put := func(text string) {
		_, err := client.PutSecretValue(t.Context(), &secretsmanager.PutSecretValueInput{SecretId: made.ARN, SecretString: &text})
		require.NoError(t, err)
	}
	put(`{"username":"u","password":"second"}`)
	_, password, err := l.Login(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, "first", password, "it is read once")
	_, password, err = l.Login(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, "second", password, "and once more when the server refused")
	put(`{"password":"hunter2"}`)
	_, _, err = l.Login(t.Context(), true)
	require.ErrorContains(t, err, aws.ToString(made.ARN))
	require.NotContains(t, err.Error(), "hunter2")
}

func TestLoginByIAM(t *testing.T) {
	t.Parallel()
	for text, message := range map[string]string{"postgres://db/d": "no user", "postgres://u:p@db/d": "password"} {
		u, err := url.Parse(text)
		require.NoError(t, err)
		_, err = dblogin.NewIAM(rig.Shared(t).AWS(), u)
		require.ErrorContains(t, err, message)
	}
	u, err := url.Parse("postgres://tranship@db.example/d")
	require.NoError(t, err)
	l, err := dblogin.NewIAM(rig.Shared(t).AWS(), u)
	require.NoError(t, err)
	user, token, err := l.Login(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, "tranship", user)
	require.Contains(t, token, "db.example:5432?Action=connect&DBUser=tranship")
	require.Contains(t, token, "X-Amz-Signature=")
}
