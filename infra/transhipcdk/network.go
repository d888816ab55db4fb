package transhipcdk

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/jsii-runtime-go"
)

const databasePort = 5432

// newNetwork makes or takes the VPC that the choice needs: for functions and
// database, and for tasks, which cannot be without one.
func (p *Platform) newNetwork() {
	switch p.props.Network {
	case Public:
		if p.props.NoFargate {
			return
		}
		p.vpc = p.newVPC([]*awsec2.SubnetConfiguration{subnets("public", awsec2.SubnetType_PUBLIC)}, 0)
	case Private:
		nat := 0
		if p.props.NatGateway {
			nat = 1
		}
		p.vpc = p.newVPC([]*awsec2.SubnetConfiguration{
			subnets("public", awsec2.SubnetType_PUBLIC),
			subnets("functions", awsec2.SubnetType_PRIVATE_WITH_EGRESS),
			subnets("database", awsec2.SubnetType_PRIVATE_ISOLATED),
		}, nat)
	case Existing:
		v := p.props.VPC
		p.vpc = awsec2.Vpc_FromVpcAttributes(p.scope, jsii.String("vpc"), &awsec2.VpcAttributes{
			VpcId:             jsii.String(v.ID),
			AvailabilityZones: jsii.Strings(v.AvailabilityZones...),
			PrivateSubnetIds:  jsii.Strings(v.Subnets...),
		})
	}
	if !p.props.NoFargate {
		p.tasks = p.securityGroup("tasks", "Tasks of attempts: out, never in")
	}
	if p.props.Network != Public {
		p.Network = &Network{
			VPC:           p.vpc,
			Subnets:       p.functionSubnets(),
			SecurityGroup: p.securityGroup("functions", "Functions: out, never in"),
			DualStack:     p.props.Network == Private && !p.props.NatGateway || p.props.VPC != nil && p.props.VPC.DualStack,
		}
	}
}

func subnets(name string, kind awsec2.SubnetType) *awsec2.SubnetConfiguration {
	c := &awsec2.SubnetConfiguration{Name: jsii.String(name), SubnetType: kind, CidrMask: jsii.Number(22)}
	if kind == awsec2.SubnetType_PUBLIC {
		// RunTask asks for an address where one is needed.
		c.MapPublicIpOnLaunch = jsii.Bool(false)
	}
	return c
}

func (p *Platform) newVPC(subnets []*awsec2.SubnetConfiguration, nat int) awsec2.IVpc {
	vpc := awsec2.NewVpc(p.scope, jsii.String("vpc"), &awsec2.VpcProps{
		VpcName:     jsii.String(p.names.name),
		MaxAzs:      jsii.Number(2),
		IpProtocol:  awsec2.IpProtocol_DUAL_STACK,
		NatGateways: jsii.Number(nat),
		// The CDK would empty the default group by a function of its own; nothing is
		// in that group.
		RestrictDefaultSecurityGroup: jsii.Bool(false),
		SubnetConfiguration:          &subnets,
		// Objects in S3 are most of the traffic, and this way costs nothing.
		GatewayEndpoints: &map[string]*awsec2.GatewayVpcEndpointOptions{"s3": {Service: awsec2.GatewayVpcEndpointAwsService_S3()}},
	})
	suppress(vpc, "AwsSolutions-VPC7", "Flow logs are billed by the GB of a data mover's traffic; they can be attached to this VPC from outside when they are needed.")
	return vpc
}

func (p *Platform) securityGroup(part, description string) awsec2.SecurityGroup {
	return awsec2.NewSecurityGroup(p.scope, id("group", part), &awsec2.SecurityGroupProps{
		Vpc:                  p.vpc,
		Description:          jsii.String(description),
		AllowAllOutbound:     jsii.Bool(true),
		AllowAllIpv6Outbound: jsii.Bool(true),
	})
}

func (p *Platform) functionSubnets() *awsec2.SubnetSelection {
	if p.props.Network == Private {
		return &awsec2.SubnetSelection{SubnetGroupName: jsii.String("functions")}
	}
	return &awsec2.SubnetSelection{SubnetType: awsec2.SubnetType_PRIVATE_WITH_EGRESS}
}

// publicTasks: tasks reach registry, logs and IPv4 ends by an address of their own
// where there is no NAT, at $0.005 an hour while they run.
func (p *Platform) publicTasks() bool {
	return p.props.Network == Public || p.props.Network == Private && !p.props.NatGateway
}

func (p *Platform) taskSubnets() *awsec2.SubnetSelection {
	if p.publicTasks() {
		return &awsec2.SubnetSelection{SubnetGroupName: jsii.String("public")}
	}
	return p.functionSubnets()
}

func (p *Platform) databaseSubnets() *awsec2.SubnetSelection {
	if p.props.Network == Private {
		return &awsec2.SubnetSelection{SubnetGroupName: jsii.String("database")}
	}
	return p.functionSubnets()
}
