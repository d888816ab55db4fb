package transhipcdk

import (
	"net"
	"strconv"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsrds"
	"github.com/aws/jsii-runtime-go"
)

// masterUser signs in by IAM alone: there is no password to keep or to rotate.
const masterUser = "postgres"

// pauseAfter is how long a database without a connection waits before it pauses;
// five minutes is the least that Aurora knows.
const pauseAfter = 300

// newDatabase makes the Aurora Serverless v2 cluster. There is no RDS Proxy: it
// bills 8 ACU at least, keeps the database awake, and pins sessions on set_config.
func (p *Platform) newDatabase() {
	props := &awsrds.CfnDBClusterProps{
		Engine:                           jsii.String("aurora-postgresql"),
		ServerlessV2ScalingConfiguration: p.scaling(),
		BackupRetentionPeriod:            jsii.Number(p.props.BackupDays),
		CopyTagsToSnapshot:               jsii.Bool(true),
		DeletionProtection:               jsii.Bool(!p.props.Disposable),
		EnableIamDatabaseAuthentication:  jsii.Bool(true),
	}
	name := "tranship"
	if p.props.Network == Public {
		// One call makes cluster, instance and gateway; AWS chooses the version, its
		// own key, and the name of database and user.
		props.WithExpressConfiguration = jsii.Bool(true)
		name = "postgres"
	} else {
		props.EngineVersion = jsii.String(p.props.EngineVersion)
		props.DatabaseName = jsii.String(name)
		props.MasterUsername = jsii.String(masterUser)
		props.MasterUserAuthenticationType = jsii.String("iam-db-auth")
		props.StorageEncrypted = jsii.Bool(true)
		props.Port = jsii.Number(databasePort)
		props.DbSubnetGroupName = p.subnetGroup()
		props.VpcSecurityGroupIds = &[]any{p.databaseGroup()}
	}
	cluster := awsrds.NewCfnDBCluster(p.scope, jsii.String("database"), props)
	if p.props.Disposable {
		cluster.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY, nil)
	} else {
		cluster.ApplyRemovalPolicy(awscdk.RemovalPolicy_SNAPSHOT, nil)
	}
	if p.props.Network == Public {
		suppress(cluster, "AwsSolutions-RDS11", "The express configuration has the usual port.")
		suppress(cluster, "AwsSolutions-RDS2", "The express configuration encrypts with a key of the service and takes no property for it.")
	} else {
		suppress(cluster, "AwsSolutions-RDS11", "Only the groups of functions and tasks reach the port; another number would hide nothing.")
		instance := awsrds.NewCfnDBInstance(p.scope, jsii.String("writer"), &awsrds.CfnDBInstanceProps{
			DbClusterIdentifier:     cluster.Ref(),
			DbInstanceClass:         jsii.String("db.serverless"),
			Engine:                  props.Engine,
			PubliclyAccessible:      jsii.Bool(false),
			AutoMinorVersionUpgrade: jsii.Bool(true),
		})
		instance.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY, nil)
	}
	// Exported always, so that an installation that goes over to another database,
	// such as a restored one, does not have to leave this one first.
	p.names.stack.ExportValue(cluster.AttrEndpointAddress(), nil)
	p.names.stack.ExportValue(cluster.AttrDbClusterResourceId(), nil)
	if p.props.Disposable {
		suppress(cluster, "AwsSolutions-RDS10", "The installation was said to be disposable.")
	}
	p.Database = Database{
		URL:            "postgres://" + masterUser + "@" + net.JoinHostPort(*cluster.AttrEndpointAddress(), strconv.Itoa(databasePort)) + "/" + name + "?sslmode=verify-full",
		ResourceID:     *cluster.AttrDbClusterResourceId(),
		User:           masterUser,
		MaxConnections: maxConnections(p.props.MaxACU),
	}
}

func (p *Platform) scaling() *awsrds.CfnDBCluster_ServerlessV2ScalingConfigurationProperty {
	s := &awsrds.CfnDBCluster_ServerlessV2ScalingConfigurationProperty{
		MinCapacity: jsii.Number(p.props.MinACU), MaxCapacity: jsii.Number(p.props.MaxACU),
	}
	if p.props.MinACU == 0 {
		s.SecondsUntilAutoPause = jsii.Number(pauseAfter)
	}
	return s
}

func (p *Platform) subnetGroup() *string {
	var ids []any
	for _, id := range *p.vpc.SelectSubnets(p.databaseSubnets()).SubnetIds {
		ids = append(ids, id)
	}
	return awsrds.NewCfnDBSubnetGroup(p.scope, jsii.String("database-subnets"), &awsrds.CfnDBSubnetGroupProps{
		DbSubnetGroupDescription: jsii.String("Database of " + p.names.name),
		SubnetIds:                &ids,
	}).Ref()
}

// databaseGroup lets functions and tasks in, and nobody else.
func (p *Platform) databaseGroup() *string {
	group := awsec2.NewSecurityGroup(p.scope, jsii.String("group-database"), &awsec2.SecurityGroupProps{
		Vpc: p.vpc, Description: jsii.String("Database: in from functions and tasks, never out"), AllowAllOutbound: jsii.Bool(false),
	})
	from := map[string]awsec2.ISecurityGroup{"functions": p.Network.SecurityGroup}
	if p.tasks != nil {
		from["tasks"] = p.tasks
	}
	for _, part := range sortedKeys(from) {
		group.AddIngressRule(from[part], awsec2.Port_Tcp(jsii.Number(databasePort)), jsii.String("from "+part), jsii.Bool(false))
	}
	return group.SecurityGroupId()
}

// maxConnections is what Aurora sets max_connections to. It follows the greatest
// capacity, and is 2,000 at most where the least one is 0 or 0.5 ACU. Between the
// known values the lower counts.
func maxConnections(maxACU float64) int {
	known := []struct {
		acu         float64
		connections int
	}{{8, 1669}, {4, 823}, {1, 189}}
	for _, k := range known {
		if maxACU >= k.acu {
			return k.connections
		}
	}
	return known[len(known)-1].connections
}
