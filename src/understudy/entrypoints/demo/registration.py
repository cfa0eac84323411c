"""TEMPORARY scaffold until the registry lands."""
import json, asyncpg
from understudy.adapters import migrations
from understudy.adapters.example_models import example_version
from understudy.entrypoints.demo.topology import VERSIONS, POLICIES, endpoints_of
async def bring_up_to_date(url):
    await migrations.upgrade(url)
    return "schema at head"
async def register(url, targets):
    c = await asyncpg.connect(url)
    ids={}
    for v in VERSIONS:
        e=example_version(v.model_name, v.version)
        await c.execute("insert into modelversion(model_name,version,artifact_path,framework,input_schema,output_schema,backend) values($1,$2,$3,$4,$5,$6,$7) on conflict do nothing", v.model_name,str(v.version),"x",e.framework,json.dumps(e.input_schema),json.dumps(e.output_schema),json.dumps({"version":str(v.version)}))
        ids[v.model_name,v.version]=i=await c.fetchval("select id from modelversion where model_name=$1 and version=$2",v.model_name,str(v.version))
        await c.execute("delete from modelendpoint where model_version_id=$1",i)
        for t in endpoints_of(v,targets): await c.execute("insert into modelendpoint(model_version_id,target) values($1,$2)",i,t)
    for p in POLICIES:
        await c.execute("insert into servingpolicy(model_name,champion_version,challenger_version,challenger_weight,shadow_version) values($1,$2,$3,$4,$5) on conflict do nothing",p.model_name,ids[p.model_name,p.champion],ids.get((p.model_name,p.challenger)),p.challenger_weight,ids.get((p.model_name,p.shadow)))
    await c.close()
