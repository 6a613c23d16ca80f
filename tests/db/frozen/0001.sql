BEGIN TRANSACTION;
CREATE TABLE checkpoints (
	id INTEGER NOT NULL, 
	project_id INTEGER NOT NULL, 
	cycle_id INTEGER, 
	run_id INTEGER, 
	parent_id INTEGER, 
	role VARCHAR(16) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	path TEXT NOT NULL, 
	hash TEXT, 
	bytes BIGINT, 
	step INTEGER, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_checkpoints PRIMARY KEY (id), 
	CONSTRAINT ck_checkpoints_kind CHECK (kind IN ('full', 'adapter')), 
	CONSTRAINT ck_checkpoints_role CHECK (role IN ('base', 'midtrained', 'recovered', 'external')), 
	CONSTRAINT fk_checkpoints_cycle_id_cycles FOREIGN KEY(cycle_id) REFERENCES cycles (id), 
	CONSTRAINT fk_checkpoints_parent_id_checkpoints FOREIGN KEY(parent_id) REFERENCES checkpoints (id), 
	CONSTRAINT fk_checkpoints_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id), 
	CONSTRAINT fk_checkpoints_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id)
);
INSERT INTO "checkpoints" VALUES(1,1,NULL,NULL,NULL,'base','full','/opt/recover/lab/base','c1eac1eac1eac1eac1eac1eac1eac1eac1eac1eac1eac1eac1eac1eac1eac1ea',9400000,NULL,'2026-11-20 12:24:28.155222');
INSERT INTO "checkpoints" VALUES(2,1,1,3,1,'midtrained','full','.recover/checkpoints/run-0003','0000000000000000000000000000000000000000000000000000000000000003',9400000,2,'2026-11-20 12:24:28.209770');
INSERT INTO "checkpoints" VALUES(3,1,1,4,2,'recovered','full','.recover/checkpoints/run-0004','0000000000000000000000000000000000000000000000000000000000000004',9400000,2,'2026-11-20 12:24:28.227292');
INSERT INTO "checkpoints" VALUES(4,1,2,6,3,'midtrained','full','.recover/checkpoints/run-0006','0000000000000000000000000000000000000000000000000000000000000006',9400000,2,'2026-11-20 12:24:28.254464');
INSERT INTO "checkpoints" VALUES(5,1,2,7,4,'recovered','full','.recover/checkpoints/run-0007','0000000000000000000000000000000000000000000000000000000000000007',9400000,2,'2026-11-20 12:24:28.267117');
CREATE TABLE corpora (
	id INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	files INTEGER NOT NULL, 
	tokens BIGINT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_corpora PRIMARY KEY (id), 
	CONSTRAINT uq_corpora_path_hash UNIQUE (path, hash)
);
INSERT INTO "corpora" VALUES(1,'/home/ada/handbook/2026-q1','0000000000000000000000000000000000000000000000000000000000000000',12,48000,'2026-11-20 12:24:28.186763');
INSERT INTO "corpora" VALUES(2,'/home/ada/handbook/2026-q2','0000000000000000000000000000000000000000000000000000000000000001',13,48900,'2026-11-20 12:24:28.245953');
CREATE TABLE cycles (
	id INTEGER NOT NULL, 
	project_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	corpus_id INTEGER, 
	verdict JSON, 
	opened_at DATETIME NOT NULL, 
	closed_at DATETIME, 
	CONSTRAINT pk_cycles PRIMARY KEY (id), 
	CONSTRAINT ck_cycles_status CHECK (status IN ('open', 'promoted', 'rejected')), 
	CONSTRAINT fk_cycles_corpus_id_corpora FOREIGN KEY(corpus_id) REFERENCES corpora (id), 
	CONSTRAINT fk_cycles_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id), 
	CONSTRAINT uq_cycles_project_id_number UNIQUE (project_id, number)
);
INSERT INTO "cycles" VALUES(1,1,1,'promoted',1,'{"passed": true, "reason": "both bounds hold"}','2026-11-20 12:24:28.197495','2026-11-20 12:24:28.240469');
INSERT INTO "cycles" VALUES(2,1,2,'promoted',2,'{"passed": true, "reason": "both bounds hold"}','2026-11-20 12:24:28.246889','2026-11-20 12:24:28.277761');
CREATE TABLE evaluations (
	id INTEGER NOT NULL, 
	checkpoint_id INTEGER NOT NULL, 
	run_id INTEGER, 
	suite TEXT NOT NULL, 
	task TEXT NOT NULL, 
	data TEXT NOT NULL, 
	settings JSON NOT NULL, 
	seconds DOUBLE NOT NULL, 
	at DATETIME NOT NULL, 
	CONSTRAINT pk_evaluations PRIMARY KEY (id), 
	CONSTRAINT fk_evaluations_checkpoint_id_checkpoints FOREIGN KEY(checkpoint_id) REFERENCES checkpoints (id), 
	CONSTRAINT fk_evaluations_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id)
);
INSERT INTO "evaluations" VALUES(1,1,1,'behaviour','ifeval','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.167087');
INSERT INTO "evaluations" VALUES(2,1,1,'retention','arithmetic','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.174207');
INSERT INTO "evaluations" VALUES(3,1,2,'knowledge','closed_book','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.199121');
INSERT INTO "evaluations" VALUES(4,2,3,'behaviour','ifeval','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.210188');
INSERT INTO "evaluations" VALUES(5,2,3,'knowledge','closed_book','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.217086');
INSERT INTO "evaluations" VALUES(6,2,3,'retention','arithmetic','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.218790');
INSERT INTO "evaluations" VALUES(7,3,4,'behaviour','ifeval','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.227687');
INSERT INTO "evaluations" VALUES(8,3,4,'knowledge','closed_book','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.231438');
INSERT INTO "evaluations" VALUES(9,3,4,'retention','arithmetic','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.233644');
INSERT INTO "evaluations" VALUES(10,1,5,'knowledge','closed_book','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.248235');
INSERT INTO "evaluations" VALUES(11,4,6,'behaviour','ifeval','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.254920');
INSERT INTO "evaluations" VALUES(12,4,6,'knowledge','closed_book','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.259168');
INSERT INTO "evaluations" VALUES(13,4,6,'retention','arithmetic','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.262794');
INSERT INTO "evaluations" VALUES(14,5,7,'behaviour','ifeval','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.267448');
INSERT INTO "evaluations" VALUES(15,5,7,'knowledge','closed_book','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.272717');
INSERT INTO "evaluations" VALUES(16,5,7,'retention','arithmetic','lab','{"limit": 40}',3.1,'2026-11-20 12:24:28.274343');
CREATE TABLE events (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	level VARCHAR(16) NOT NULL, 
	message TEXT NOT NULL, 
	CONSTRAINT pk_events PRIMARY KEY (id), 
	CONSTRAINT fk_events_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id)
);
INSERT INTO "events" VALUES(1,3,'2026-11-20 12:24:28.208166','info','midtrain starts from checkpoint 1');
INSERT INTO "events" VALUES(2,4,'2026-11-20 12:24:28.226755','info','distill starts from checkpoint 2');
INSERT INTO "events" VALUES(3,6,'2026-11-20 12:24:28.253950','info','midtrain starts from checkpoint 3');
INSERT INTO "events" VALUES(4,7,'2026-11-20 12:24:28.266703','info','distill starts from checkpoint 4');
CREATE TABLE items (
	evaluation_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	prompt TEXT NOT NULL, 
	answer TEXT NOT NULL, 
	passed BOOLEAN, 
	verdicts JSON, 
	CONSTRAINT pk_items PRIMARY KEY (evaluation_id, position), 
	CONSTRAINT fk_items_evaluation_id_evaluations FOREIGN KEY(evaluation_id) REFERENCES evaluations (id)
);
INSERT INTO "items" VALUES(1,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(1,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(1,2,'2','Question 2?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(2,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(2,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(2,2,'2','Question 2?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(3,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(3,1,'1','Question 1?','no',0,'[false]');
INSERT INTO "items" VALUES(3,2,'2','Question 2?','no',0,'[false]');
INSERT INTO "items" VALUES(4,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(4,1,'1','Question 1?','no',0,'[false]');
INSERT INTO "items" VALUES(4,2,'2','Question 2?','no',0,'[false]');
INSERT INTO "items" VALUES(5,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(5,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(5,2,'2','Question 2?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(6,0,'0','Question 0?','no',0,'[false]');
INSERT INTO "items" VALUES(6,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(6,2,'2','Question 2?','no',0,'[false]');
INSERT INTO "items" VALUES(7,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(7,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(7,2,'2','Question 2?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(8,0,'0','Question 0?','no',0,'[false]');
INSERT INTO "items" VALUES(8,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(8,2,'2','Question 2?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(9,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(9,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(9,2,'2','Question 2?','no',0,'[false]');
INSERT INTO "items" VALUES(10,0,'0','Question 0?','no',0,'[false]');
INSERT INTO "items" VALUES(10,1,'1','Question 1?','no',0,'[false]');
INSERT INTO "items" VALUES(10,2,'2','Question 2?','no',0,'[false]');
INSERT INTO "items" VALUES(11,0,'0','Question 0?','no',0,'[false]');
INSERT INTO "items" VALUES(11,1,'1','Question 1?','no',0,'[false]');
INSERT INTO "items" VALUES(11,2,'2','Question 2?','no',0,'[false]');
INSERT INTO "items" VALUES(12,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(12,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(12,2,'2','Question 2?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(13,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(13,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(13,2,'2','Question 2?','no',0,'[false]');
INSERT INTO "items" VALUES(14,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(14,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(14,2,'2','Question 2?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(15,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(15,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(15,2,'2','Question 2?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(16,0,'0','Question 0?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(16,1,'1','Question 1?','Yes.',1,'[true]');
INSERT INTO "items" VALUES(16,2,'2','Question 2?','no',0,'[false]');
CREATE TABLE points (
	run_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	value DOUBLE, 
	CONSTRAINT pk_points PRIMARY KEY (run_id, step, name), 
	CONSTRAINT fk_points_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id)
)
 WITHOUT ROWID

;
INSERT INTO "points" VALUES(3,0,'grad_norm',1.16024537862238896757e+00);
INSERT INTO "points" VALUES(3,0,'learning_rate',0.0001);
INSERT INTO "points" VALUES(3,0,'loss',2.52252815533155771987e+00);
INSERT INTO "points" VALUES(3,1,'grad_norm',1.41694121794745608866e+00);
INSERT INTO "points" VALUES(3,1,'learning_rate',5.0e-05);
INSERT INTO "points" VALUES(3,1,'loss',6.07638292338753216448e-01);
INSERT INTO "points" VALUES(4,0,'entropy',1.2);
INSERT INTO "points" VALUES(4,0,'grad_norm',6.60079779024541068999e-01);
INSERT INTO "points" VALUES(4,0,'kl',8.34929134448767373832e-01);
INSERT INTO "points" VALUES(4,0,'learning_rate',0.0001);
INSERT INTO "points" VALUES(4,0,'loss',8.34929134448767373832e-01);
INSERT INTO "points" VALUES(4,0,'rollout_length',4.22309782085865279563e+01);
INSERT INTO "points" VALUES(4,1,'entropy',1.05);
INSERT INTO "points" VALUES(4,1,'grad_norm',1.21034997608828076565e+00);
INSERT INTO "points" VALUES(4,1,'kl',2.00910894450926164056e-01);
INSERT INTO "points" VALUES(4,1,'learning_rate',5.0e-05);
INSERT INTO "points" VALUES(4,1,'loss',2.00910894450926164056e-01);
INSERT INTO "points" VALUES(4,1,'rollout_length',4.67377520030849709104e+01);
INSERT INTO "points" VALUES(6,0,'grad_norm',1.21440636872725615802e+00);
INSERT INTO "points" VALUES(6,0,'learning_rate',0.0001);
INSERT INTO "points" VALUES(6,0,'loss',2.53941443845066761042e+00);
INSERT INTO "points" VALUES(6,1,'grad_norm',5.8366324281939452323e-01);
INSERT INTO "points" VALUES(6,1,'learning_rate',5.0e-05);
INSERT INTO "points" VALUES(6,1,'loss',5.68688077700494898358e-01);
INSERT INTO "points" VALUES(7,0,'entropy',1.2);
INSERT INTO "points" VALUES(7,0,'grad_norm',1.14098486256245035264e+00);
INSERT INTO "points" VALUES(7,0,'kl',8.03112937943561200349e-01);
INSERT INTO "points" VALUES(7,0,'learning_rate',0.0001);
INSERT INTO "points" VALUES(7,0,'loss',8.03112937943561200349e-01);
INSERT INTO "points" VALUES(7,0,'rollout_length',4.12732081293278696421e+01);
INSERT INTO "points" VALUES(7,1,'entropy',1.05);
INSERT INTO "points" VALUES(7,1,'grad_norm',1.32994068662840603245e+00);
INSERT INTO "points" VALUES(7,1,'kl',1.92858545118505114723e-01);
INSERT INTO "points" VALUES(7,1,'learning_rate',5.0e-05);
INSERT INTO "points" VALUES(7,1,'loss',1.92858545118505114723e-01);
INSERT INTO "points" VALUES(7,1,'rollout_length',4.05552704588966150822e+01);
CREATE TABLE projects (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	root TEXT NOT NULL, 
	base TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_projects PRIMARY KEY (id), 
	CONSTRAINT uq_projects_name UNIQUE (name)
);
INSERT INTO "projects" VALUES(1,'handbook','/home/ada/handbook','lab','2026-11-20 12:24:28.118459');
CREATE TABLE promotions (
	id INTEGER NOT NULL, 
	project_id INTEGER NOT NULL, 
	cycle_id INTEGER, 
	checkpoint_id INTEGER NOT NULL, 
	decision VARCHAR(16) NOT NULL, 
	who TEXT NOT NULL, 
	why TEXT NOT NULL, 
	at DATETIME NOT NULL, 
	CONSTRAINT pk_promotions PRIMARY KEY (id), 
	CONSTRAINT ck_promotions_decision CHECK (decision IN ('promoted', 'rejected')), 
	CONSTRAINT fk_promotions_checkpoint_id_checkpoints FOREIGN KEY(checkpoint_id) REFERENCES checkpoints (id), 
	CONSTRAINT fk_promotions_cycle_id_cycles FOREIGN KEY(cycle_id) REFERENCES cycles (id), 
	CONSTRAINT fk_promotions_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id)
);
INSERT INTO "promotions" VALUES(1,1,1,3,'promoted','gate','both bounds hold','2026-11-20 12:24:28.245134');
INSERT INTO "promotions" VALUES(2,1,2,5,'promoted','gate','both bounds hold','2026-11-20 12:24:28.278481');
CREATE TABLE recover_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT recover_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "recover_version" VALUES('0001');
CREATE TABLE rollouts (
	run_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	prompt TEXT NOT NULL, 
	text TEXT NOT NULL, 
	truncated BOOLEAN NOT NULL, 
	reward DOUBLE, 
	CONSTRAINT pk_rollouts PRIMARY KEY (run_id, step, position), 
	CONSTRAINT fk_rollouts_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id)
);
INSERT INTO "rollouts" VALUES(4,0,0,'Say hello in capitals.','HELLO',0,NULL);
INSERT INTO "rollouts" VALUES(4,0,1,'Say hello in capitals.','HELLO',0,NULL);
INSERT INTO "rollouts" VALUES(7,0,0,'Say hello in capitals.','HELLO',0,NULL);
INSERT INTO "rollouts" VALUES(7,0,1,'Say hello in capitals.','HELLO',0,NULL);
CREATE TABLE runs (
	id INTEGER NOT NULL, 
	project_id INTEGER NOT NULL, 
	cycle_id INTEGER, 
	kind VARCHAR(16) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	settings JSON NOT NULL, 
	seed BIGINT NOT NULL, 
	host TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	code_version TEXT NOT NULL, 
	started_at DATETIME NOT NULL, 
	heartbeat_at DATETIME NOT NULL, 
	finished_at DATETIME, 
	error TEXT, 
	CONSTRAINT pk_runs PRIMARY KEY (id), 
	CONSTRAINT ck_runs_kind CHECK (kind IN ('midtrain', 'distill', 'eval')), 
	CONSTRAINT ck_runs_status CHECK (status IN ('running', 'done', 'failed', 'interrupted')), 
	CONSTRAINT fk_runs_cycle_id_cycles FOREIGN KEY(cycle_id) REFERENCES cycles (id), 
	CONSTRAINT fk_runs_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id)
);
INSERT INTO "runs" VALUES(1,1,NULL,'eval','done','{"suite": "all"}',0,'vm',29140,'0.1.0','2026-11-20 12:24:28.165867','2026-11-20 12:24:28.165871','2026-11-20 12:24:28.185409',NULL);
INSERT INTO "runs" VALUES(2,1,1,'eval','done','{"suite": "knowledge"}',0,'vm',29140,'0.1.0','2026-11-20 12:24:28.198573','2026-11-20 12:24:28.198575','2026-11-20 12:24:28.207057',NULL);
INSERT INTO "runs" VALUES(3,1,1,'midtrain','done','{"lr": 0.0001, "recipe": "midtrain"}',0,'vm',29140,'0.1.0','2026-11-20 12:24:28.207949','2026-11-20 12:24:28.222980','2026-11-20 12:24:28.224855',NULL);
INSERT INTO "runs" VALUES(4,1,1,'distill','done','{"lr": 0.0001, "recipe": "distill"}',0,'vm',29140,'0.1.0','2026-11-20 12:24:28.226500','2026-11-20 12:24:28.237016','2026-11-20 12:24:28.237878',NULL);
INSERT INTO "runs" VALUES(5,1,2,'eval','done','{"suite": "knowledge"}',0,'vm',29140,'0.1.0','2026-11-20 12:24:28.247792','2026-11-20 12:24:28.247794','2026-11-20 12:24:28.252432',NULL);
INSERT INTO "runs" VALUES(6,1,2,'midtrain','done','{"lr": 0.0001, "recipe": "midtrain"}',0,'vm',29140,'0.1.0','2026-11-20 12:24:28.253700','2026-11-20 12:24:28.265001','2026-11-20 12:24:28.265596',NULL);
INSERT INTO "runs" VALUES(7,1,2,'distill','done','{"lr": 0.0001, "recipe": "distill"}',0,'vm',29140,'0.1.0','2026-11-20 12:24:28.266501','2026-11-20 12:24:28.276704','2026-11-20 12:24:28.277290',NULL);
CREATE TABLE scores (
	evaluation_id INTEGER NOT NULL, 
	metric TEXT NOT NULL, 
	value DOUBLE, 
	n INTEGER NOT NULL, 
	stderr DOUBLE, 
	low DOUBLE, 
	high DOUBLE, 
	CONSTRAINT pk_scores PRIMARY KEY (evaluation_id, metric), 
	CONSTRAINT fk_scores_evaluation_id_evaluations FOREIGN KEY(evaluation_id) REFERENCES evaluations (id)
);
INSERT INTO "scores" VALUES(1,'prompt_level_strict_acc',0.9,40,4.74341649025256870131e-02,8.07029036791049647625e-01,9.92970963208950396783e-01);
INSERT INTO "scores" VALUES(2,'match',0.95,40,3.4460121880225569324e-02,8.82458161114757833054e-01,1.0);
INSERT INTO "scores" VALUES(3,'match',0.05,40,3.44601218802255554463e-02,0.0,1.17541838885242083678e-01);
INSERT INTO "scores" VALUES(4,'prompt_level_strict_acc',0.475,40,7.89580584867687756966e-02,3.20242205365933174654e-01,6.29757794634066780936e-01);
INSERT INTO "scores" VALUES(5,'match',0.925,40,4.16458281223941947923e-02,8.43374176880107406795e-01,1.0);
INSERT INTO "scores" VALUES(6,'match',0.6,40,7.74596669241483376522e-02,4.48179052828669211017e-01,7.51820947171330744573e-01);
INSERT INTO "scores" VALUES(7,'prompt_level_strict_acc',0.9,40,4.74341649025256870131e-02,8.07029036791049647625e-01,9.92970963208950396783e-01);
INSERT INTO "scores" VALUES(8,'match',0.9,40,4.74341649025256870131e-02,8.07029036791049647625e-01,9.92970963208950396783e-01);
INSERT INTO "scores" VALUES(9,'match',0.875,40,5.22912516583797226665e-02,7.72509146749575714707e-01,9.77490853250424285292e-01);
INSERT INTO "scores" VALUES(10,'match',0.05,40,3.44601218802255554463e-02,0.0,1.17541838885242083678e-01);
INSERT INTO "scores" VALUES(11,'prompt_level_strict_acc',0.4,40,7.74596669241483376522e-02,2.48179052828669283181e-01,5.51820947171330788982e-01);
INSERT INTO "scores" VALUES(12,'match',0.95,40,3.4460121880225569324e-02,8.82458161114757833054e-01,1.0);
INSERT INTO "scores" VALUES(13,'match',0.575,40,7.81624910043174081497e-02,4.21801517631537836727e-01,7.28198482368462074454e-01);
INSERT INTO "scores" VALUES(14,'prompt_level_strict_acc',0.925,40,4.16458281223941947923e-02,8.43374176880107406795e-01,1.0);
INSERT INTO "scores" VALUES(15,'match',0.95,40,3.4460121880225569324e-02,8.82458161114757833054e-01,1.0);
INSERT INTO "scores" VALUES(16,'match',0.85,40,5.64579489531810765901e-02,7.39342420051765092381e-01,9.60657579948234863209e-01);
CREATE INDEX ix_runs_cycle_id ON runs (cycle_id);
CREATE INDEX ix_runs_project_id ON runs (project_id);
CREATE INDEX ix_checkpoints_cycle_id ON checkpoints (cycle_id);
CREATE INDEX ix_checkpoints_project_id_role ON checkpoints (project_id, role);
CREATE INDEX ix_checkpoints_run_id ON checkpoints (run_id);
CREATE INDEX ix_events_run_id ON events (run_id);
CREATE INDEX ix_evaluations_checkpoint_id ON evaluations (checkpoint_id);
CREATE INDEX ix_evaluations_run_id ON evaluations (run_id);
CREATE INDEX ix_promotions_project_id ON promotions (project_id);
COMMIT;
